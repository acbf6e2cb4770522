// If, Loop, Scan, SequenceMap. Their outputs follow from their subgraphs, which infer.cpp walks; in a run
// they are known only when the subgraph has run.
#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

void nothing(InferContext&) {}

constexpr OpSchema kSchemas[] = {
    {"", "If", 1, 1, 1, -1, nothing, true, false},
    {"", "Loop", 2, -1, 1, -1, nothing, true, false},
    {"", "Scan", 1, -1, 1, -1, nothing, true, false},
    {"", "SequenceMap", 1, -1, 1, -1, nothing, true, false},
};

}  // namespace

std::span<const OpSchema> control_schemas() { return kSchemas; }

}  // namespace pare
