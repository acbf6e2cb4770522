// Qwen 3 normalizes queries and keys by head. Qwen 2 MoE has a shared expert beside the chosen ones, with a
// gate of its own; Qwen 3 MoE has none. Layers that config.json names have a plain mlp.
#include "graphsurgeon/families/family.h"

namespace pare {
namespace {

ValueId qwen_experts(NetBuilder& net, ValueId x, std::int64_t layer, const std::string& block) {
  const ModelConfig& c = net.config();
  const std::string module = block + ".mlp";
  if (c.is_dense(layer)) return net.gated_mlp(x, module, c.intermediate);
  const ValueId mixed = mix_experts(net, x, module, {"gate_proj", "up_proj", "down_proj"});
  if (c.shared_intermediate == 0 || c.model_type != "qwen2_moe") return mixed;
  const ValueId shared = net.gated_mlp(x, module + ".shared_expert", c.shared_intermediate);
  const ValueId gate = net.op("Sigmoid", {net.linear(x, module + ".shared_expert_gate", c.hidden, 1)}, {},
                              module + ".shared_expert_gate.sigmoid");
  const ValueId share = net.op("Mul", {shared, gate}, {}, module + ".shared_expert.share");
  return net.op("Add", {mixed, share}, {}, module + ".add_shared");
}

}  // namespace

Graph build_qwen3(NetBuilder& net) {
  DecoderParts parts;
  parts.head_norms = true;
  return build_decoder(net, parts);
}

Graph build_qwen2_moe(NetBuilder& net) {
  DecoderParts parts;
  parts.mlp = qwen_experts;
  return build_decoder(net, parts);
}

Graph build_qwen3_moe(NetBuilder& net) {
  DecoderParts parts;
  parts.head_norms = true;
  parts.mlp = qwen_experts;
  return build_decoder(net, parts);
}

}  // namespace pare
