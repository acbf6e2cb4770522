#include "graphsurgeon/verbs/precision_rules.h"

#include <algorithm>
#include <iterator>

#include "engine/ir/subgraph.h"
#include "graphsurgeon/verbs/convert_precision.h"

namespace pare {
namespace {

template <std::size_t N>
bool one_of(const Node& node, const char* const (&ops)[N]) {
  return std::any_of(std::begin(ops), std::end(ops), [&](const char* op) { return node.is(op); });
}

}  // namespace

bool only_moves(const Node& node) {
  constexpr const char* kOps[] = {"Identity",
                                  "Reshape",
                                  "Transpose",
                                  "Concat",
                                  "Slice",
                                  "Split",
                                  "Squeeze",
                                  "Unsqueeze",
                                  "Flatten",
                                  "Expand",
                                  "Tile",
                                  "Gather",
                                  "GatherND",
                                  "GatherElements",
                                  "DepthToSpace",
                                  "SpaceToDepth",
                                  "Pad",
                                  "Where",
                                  "Trilu",
                                  "ScatterND",
                                  "ScatterElements",
                                  "ReverseSequence",
                                  "Dropout",
                                  "MaxPool",
                                  "Equal",
                                  "Greater",
                                  "GreaterOrEqual",
                                  "Less",
                                  "LessOrEqual",
                                  "TensorScatter"};
  return one_of(node, kOps);
}

bool is_heavy(const Node& node) {
  constexpr const char* kOps[] = {"Conv", "ConvTranspose", "MatMul", "Gemm",  "Attention",
                                  "LSTM", "GRU",           "RNN",    "Einsum"};
  return one_of(node, kOps);
}

bool is_control(const Node& node) { return has_subgraph(node); }

bool takes_any(const Node& node) {
  return node.is("Shape") || node.is("Size") || node.is("IsNaN") || node.is("Cast");
}

bool fixed_input(const Node& node, std::size_t slot) {
  return (node.is("Resize") && (slot == 1 || slot == 2)) || (node.is("Dropout") && slot == 1);
}
bool fixed_output(const Node& node, std::size_t slot) { return node.is("LayerNormalization") && slot > 0; }

const std::vector<std::string>& blocked_by_default() {
  static const std::vector<std::string> kOps = {"ArgMax",
                                                "ArgMin",
                                                "Bernoulli",
                                                "BitCast",
                                                "CastLike",
                                                "ConcatFromSequence",
                                                "CumProd",
                                                "CumSum",
                                                "DequantizeLinear",
                                                "DynamicQuantizeLinear",
                                                "EyeLike",
                                                "Multinomial",
                                                "NonMaxSuppression",
                                                "Optional",
                                                "OptionalGetElement",
                                                "OptionalHasElement",
                                                "QuantizeLinear",
                                                "RandomNormal",
                                                "RandomNormalLike",
                                                "RandomUniform",
                                                "RandomUniformLike",
                                                "Range",
                                                "RoiAlign",
                                                "SequenceAt",
                                                "SequenceConstruct",
                                                "SequenceErase",
                                                "SequenceInsert",
                                                "SequenceMap",
                                                "SplitToSequence",
                                                "TopK",
                                                "Unique"};
  return kOps;
}

}  // namespace pare
