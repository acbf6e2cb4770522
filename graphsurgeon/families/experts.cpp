#include "engine/base/error.h"
#include "graphsurgeon/families/family.h"

namespace pare {
namespace {

// Values [T, used] and expert numbers [T, used] of the chosen experts.
std::vector<ValueId> route(NetBuilder& net, ValueId rows, const std::string& module) {
  const ModelConfig& c = net.config();
  const ValueId scores = net.linear(rows, module + ".gate", c.hidden, c.experts);
  const ValueId shares = net.op("Softmax", {scores}, {{"axis", std::int64_t{-1}}}, module + ".softmax");
  std::vector<ValueId> best =
      net.ops("TopK", {shares, net.ints({c.experts_used})}, 2, {{"axis", std::int64_t{-1}}}, module + ".top");
  if (c.normalize_expert_weights) {
    const ValueId sum =
        net.op("ReduceSum", {best[0], net.ints({-1})}, {{"keepdims", std::int64_t{1}}}, module + ".sum");
    best[0] = net.op("Div", {best[0], sum}, {}, module + ".share");
  }
  return best;
}

}  // namespace

ValueId mix_experts(NetBuilder& net, ValueId x, const std::string& module, const ExpertNames& names) {
  const ModelConfig& c = net.config();
  const ValueId shape = net.op("Shape", {x}, {}, module + ".shape");
  const ValueId rows = net.op("Reshape", {x, net.ints({-1, c.hidden})}, {}, module + ".rows");
  const std::int64_t rank = net.set_rank(2);
  const std::vector<ValueId> chosen = route(net, rows, module);
  ValueId sum = net.op("ConstantOfShape", {net.op("Shape", {rows}, {}, module + ".rows_shape")},
                       {{"value", Tensor::from<float>(DType::kF32, {1}, {0})}}, module + ".zeros");
  for (std::int64_t e = 0; e < c.experts; ++e) {
    const std::string expert = fmt::format("{}.experts.{}", module, e);
    const ValueId hit = net.op("Equal", {chosen[1], net.number(e)}, {}, expert + ".hit");
    const ValueId places = net.op("Transpose", {net.op("NonZero", {hit}, {}, expert + ".nonzero")},
                                  {{"perm", std::vector<std::int64_t>{1, 0}}}, expert + ".places");  // [n, 2]
    const ValueId tokens = net.op("Slice", {places, net.ints({0}), net.ints({1}), net.ints({1})}, {},
                                  expert + ".tokens");  // [n, 1]
    const ValueId in = net.op("GatherND", {rows, tokens}, {}, expert + ".in");
    const ValueId share =
        net.op("Unsqueeze", {net.op("GatherND", {chosen[0], places}, {}, expert + ".weights"), net.ints({1})},
               {}, expert + ".share");
    const ValueId out = net.gated_mlp(in, expert, c.expert_intermediate, names.gate, names.up, names.down);
    const ValueId weighted = net.op("Mul", {out, share}, {}, expert + ".weighted");
    sum = net.op("ScatterND", {sum, tokens, weighted}, {{"reduction", std::string("add")}}, expert + ".add");
  }
  net.set_rank(rank);
  return net.op("Reshape", {sum, shape}, {}, module + ".join");
}

}  // namespace pare
