#include <cmath>

#include "engine/base/error.h"
#include "graphsurgeon/families/family.h"

namespace pare {
namespace {

struct Heads {
  ValueId q, k, v;
};

// One product, cut into queries, keys and values.
Heads fused_projection(NetBuilder& net, ValueId x, const std::string& module) {
  const ModelConfig& c = net.config();
  const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  const ValueId all = net.linear(x, module + ".qkv_proj", c.hidden, q + 2 * kv, c.attention_bias);
  const std::vector<ValueId> parts =
      net.ops("Split", {all, net.ints({q, kv, kv})}, 3, {{"axis", std::int64_t{-1}}}, module + ".split");
  return {parts[0], parts[1], parts[2]};
}

Heads projections(NetBuilder& net, ValueId x, const std::string& module) {
  const ModelConfig& c = net.config();
  const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  return {net.linear(x, module + ".q_proj", c.hidden, q, c.attention_bias),
          net.linear(x, module + ".k_proj", c.hidden, kv, c.attention_bias),
          net.linear(x, module + ".v_proj", c.hidden, kv, c.attention_bias)};
}

ValueId attention(NetBuilder& net, ValueId x, std::int64_t layer, const std::string& module,
                  const DecoderParts& parts) {
  const ModelConfig& c = net.config();
  Heads h = parts.fused ? fused_projection(net, x, module) : projections(net, x, module);
  if (parts.head_norms) {
    h.q = net.norm_heads(h.q, module + ".q_norm", c.heads, parts.norm_offset);
    h.k = net.norm_heads(h.k, module + ".k_norm", c.kv_heads, parts.norm_offset);
  }
  h.q = net.rotate(h.q, c.heads, c.is_local(layer), module + ".rotate_q");
  h.k = net.rotate(h.k, c.kv_heads, c.is_local(layer), module + ".rotate_k");
  const ValueId mixed = net.attend(h.q, h.k, h.v, layer, module + ".attention");
  return net.linear(mixed, module + ".o_proj", c.heads * c.head_size, c.hidden, c.output_bias);
}

ValueId fused_mlp(NetBuilder& net, ValueId x, const std::string& module) {
  const ModelConfig& c = net.config();
  const ValueId both = net.linear(x, module + ".gate_up_proj", c.hidden, 2 * c.intermediate);
  const std::vector<ValueId> parts = net.ops("Split", {both, net.ints({c.intermediate, c.intermediate})}, 2,
                                             {{"axis", std::int64_t{-1}}}, module + ".split");
  const ValueId product = net.op("Mul", {net.activate(parts[0], c.activation, module + ".act"), parts[1]}, {},
                                 module + ".product");
  return net.linear(product, module + ".down_proj", c.intermediate, c.hidden);
}

// Where the decoder stands in the names: alone, inside a causal model, or inside one that also sees.
std::string decoder_prefix(const NetBuilder& net) {
  for (const char* prefix : {"model.", "model.language_model.", "language_model.model.", ""})
    if (net.has(std::string(prefix) + "embed_tokens.weight")) return prefix;
  return "model.";
}

}  // namespace

ValueId soft_cap(NetBuilder& net, ValueId x, double cap, const std::string& name) {
  if (cap == 0) return x;
  const auto factor = static_cast<float>(cap);
  const ValueId inside = net.op("Div", {x, net.number(factor)}, {}, name + ".divide");
  return net.op("Mul", {net.op("Tanh", {inside}, {}, name + ".tanh"), net.number(factor)}, {}, name);
}

Graph build_decoder(NetBuilder& net, const DecoderParts& parts) {
  const ModelConfig& c = net.config();
  const std::string prefix = decoder_prefix(net), embed = prefix + "embed_tokens";
  ValueId x = net.embedding(net.input_ids(), embed, c.vocabulary, c.hidden);
  if (parts.embedding_scale != 1)
    x = net.op("Mul", {x, net.number(static_cast<float>(parts.embedding_scale))}, {}, embed + ".scale");
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string block = fmt::format("{}layers.{}", prefix, layer);
    ValueId y = net.rms_norm(x, block + ".input_layernorm", c.hidden, parts.norm_offset);
    y = attention(net, y, layer, block + ".self_attn", parts);
    if (parts.outer_norms)
      y = net.rms_norm(y, block + ".post_attention_layernorm", c.hidden, parts.norm_offset);
    x = net.op("Add", {x, y}, {}, block + ".add_attention");
    const char* norm = parts.outer_norms ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
    y = net.rms_norm(x, block + norm, c.hidden, parts.norm_offset);
    y = parts.mlp != nullptr ? parts.mlp(net, y, layer, block)
        : parts.fused        ? fused_mlp(net, y, block + ".mlp")
                             : net.gated_mlp(y, block + ".mlp", c.intermediate);
    if (parts.outer_norms)
      y = net.rms_norm(y, block + ".post_feedforward_layernorm", c.hidden, parts.norm_offset);
    x = net.op("Add", {x, y}, {}, block + ".add_mlp");
  }
  x = net.rms_norm(net.last_position(x), prefix + "norm", c.hidden, parts.norm_offset);
  x = c.tied ? net.linear_with(x, "lm_head", embed + ".weight", c.hidden, c.vocabulary)
             : net.linear(x, "lm_head", c.hidden, c.vocabulary);
  return net.finish(soft_cap(net, x, c.final_softcap, "lm_head.cap"), "logits");
}

}  // namespace pare
