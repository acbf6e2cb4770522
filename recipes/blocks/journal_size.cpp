#include "recipes/blocks/journal_size.h"

#include <sys/statvfs.h>

#include <set>

#include "engine/base/error.h"
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

}  // namespace

std::int64_t journal_bytes(const Graph& graph, const std::vector<GraphBlock>& blocks,
                           const quant::Spec& spec) {
  const quant::RuleBook rules(spec);
  std::int64_t bytes = 0;
  for (const GraphBlock& block : blocks) {
    std::set<ValueId> seen;
    for (const NodeId id : block.nodes) {
      const Node& node = graph.node(id);
      if ((!node.is("MatMul") && !node.is("Gemm")) || !seen.insert(node.in.at(1)).second) continue;
      const Value& weight = graph.value(node.in[1]);
      if (weight.shape.rank() != 2 || !weight.shape.concrete()) continue;
      const std::int64_t ins = weight.shape.dims[0].value, outs = weight.shape.dims[1].value;
      const quant::Resolved resolved = rules.resolve(graph, node);
      if (resolved.quantize && resolved.weights.active())
        bytes += coded_bytes(quant::fit_block(resolved.weights, ins, 1, spec.target), ins, outs);
      else if (weight.constant.empty())  // a view behind Transpose and Cast, widened in the block
        bytes += 4 * ins * outs;
    }
  }
  return bytes;
}

void check_journal_room(const std::string& folder, std::int64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const double room = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (room >= static_cast<double>(bytes)) return;
  throw make_error(ErrorCode::kDevice, "the blocks take {:.2f} GB on the disk, and {:.2f} GB are free",
                   static_cast<double>(bytes) * 1e-9, room * 1e-9)
      .at(folder)
      .hint("free some space, or give a folder for the run on another disk");
}

}  // namespace pare
