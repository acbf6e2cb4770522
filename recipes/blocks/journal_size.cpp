#include "recipes/blocks/journal_size.h"

#include <sys/statvfs.h>

#include <set>

#include "engine/base/error.h"
#include "eval/report_render.h"
#include "quant/placement/rules.h"

namespace pare {
namespace {

std::int64_t coded_bytes(const quant::Format& format, std::int64_t ins, std::int64_t outs) {
  const std::int64_t count = ins * outs;
  std::int64_t scales = 1;
  if (format.granularity == quant::Granularity::kChannel) scales = outs;
  if (format.granularity == quant::Granularity::kBlock && format.block > 0)
    scales = outs * ((ins + format.block - 1) / format.block);
  const std::int64_t each = bits(format.scales) + (format.symmetric ? 0 : bits(format.dtype));
  return (count * bits(format.dtype) + scales * each) / 8;
}

struct ViewedConstant {
  std::int64_t bytes = 0;
  bool shared = false;  // somebody else reads it too: a head that is the embedding
};

// The constant itself, or the one behind Transpose and Cast.
ViewedConstant viewed_constant(const Graph& graph, ValueId id) {
  bool shared = false;
  while (id != ValueId::kNone) {
    shared = shared || graph.users(id).size() > 1;
    if (graph.is_constant(id)) return {static_cast<std::int64_t>(graph.value(id).constant.bytes()), shared};
    const NodeId producer = graph.producer(id);
    if (producer == NodeId::kNone) break;
    const Node& node = graph.node(producer);
    if (!node.is("Transpose") && !node.is("Cast")) break;
    id = node.in.at(0);
  }
  return {0, shared};
}

}  // namespace

DiskNeed disk_need(const Graph& graph, const std::vector<GraphBlock>& blocks, const quant::Spec& spec) {
  const quant::RuleBook rules(spec);
  DiskNeed need;
  for (std::size_t i = 0; i < graph.value_count(); ++i)
    need.model += static_cast<std::int64_t>(graph.value(static_cast<ValueId>(i)).constant.bytes());
  for (const GraphBlock& block : blocks) {
    std::set<ValueId> seen;
    std::int64_t widened = 0, in_graph = 0;  // layers that stay float
    bool any = false;
    for (const NodeId id : block.nodes) {
      const Node& node = graph.node(id);
      if ((!node.is("MatMul") && !node.is("Gemm")) || !seen.insert(node.in.at(1)).second) continue;
      const Value& weight = graph.value(node.in[1]);
      if (weight.shape.rank() != 2 || !weight.shape.concrete()) continue;
      const std::int64_t ins = weight.shape.dims[0].value, outs = weight.shape.dims[1].value;
      const ViewedConstant stored = viewed_constant(graph, node.in[1]);
      const quant::Resolved resolved = rules.resolve(graph, node);
      if (resolved.quantize && resolved.weights.active()) {
        any = true;
        const std::int64_t bytes = coded_bytes(
            quant::fit_block(resolved.weights, ins, 1, spec.target, graph.value(node.in[1]).name), ins, outs);
        need.blocks += bytes;
        need.model += bytes - (stored.shared ? 0 : stored.bytes);
      } else if (weight.constant.empty()) {  // a view behind Transpose and Cast, widened in the block
        widened += 4 * ins * outs;
        in_graph += stored.shared ? 0 : stored.bytes;
      }
    }
    if (!any) continue;
    need.blocks += widened;
    need.model += widened - in_graph;
  }
  return need;
}

void check_room(const std::string& folder, std::int64_t bytes, const std::string& what) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const double room = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (room >= static_cast<double>(bytes)) return;
  throw make_error(ErrorCode::kDevice, "{} take {} on the disk, and {} are free", what,
                   bytes_text(static_cast<double>(bytes)), bytes_text(room))
      .at(folder)
      .hint("free some space, or give a folder for the run on another disk");
}

}  // namespace pare
