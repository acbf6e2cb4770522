// OPT: learned positions that count from 2, LayerNormalization before or (350m) after the parts of a block,
// perhaps an embedding that is narrower than the blocks.
#include "engine/base/error.h"
#include "graphsurgeon/families/family.h"

namespace pare {
namespace {

constexpr std::int64_t kFirstPosition = 2;

ValueId block(NetBuilder& net, ValueId x, std::int64_t layer, const std::string& name) {
  const ModelConfig& c = net.config();
  const auto norm = [&](ValueId v, const char* which) { return net.layer_norm(v, name + which, c.hidden); };
  const std::string attn = name + ".self_attn";
  ValueId y = c.norm_first ? norm(x, ".self_attn_layer_norm") : x;
  const ValueId q = net.linear(y, attn + ".q_proj", c.hidden, c.hidden, true);
  const ValueId k = net.linear(y, attn + ".k_proj", c.hidden, c.hidden, true);
  const ValueId v = net.linear(y, attn + ".v_proj", c.hidden, c.hidden, true);
  y = net.linear(net.attend(q, k, v, layer, attn + ".attention"), attn + ".out_proj", c.hidden, c.hidden,
                 true);
  x = net.op("Add", {x, y}, {}, name + ".add_attention");
  if (!c.norm_first) x = norm(x, ".self_attn_layer_norm");
  y = c.norm_first ? norm(x, ".final_layer_norm") : x;
  y = net.activate(net.linear(y, name + ".fc1", c.hidden, c.intermediate, true), c.activation, name + ".act");
  y = net.linear(y, name + ".fc2", c.intermediate, c.hidden, true);
  x = net.op("Add", {x, y}, {}, name + ".add_mlp");
  return c.norm_first ? x : norm(x, ".final_layer_norm");
}

}  // namespace

Graph build_opt(NetBuilder& net) {
  const ModelConfig& c = net.config();
  const std::string prefix = net.has("decoder.embed_tokens.weight") ? "decoder" : "model.decoder";
  const bool narrow = c.embedding_size != c.hidden;
  ValueId x = net.embedding(net.input_ids(), prefix + ".embed_tokens", c.vocabulary, c.embedding_size);
  if (narrow) x = net.linear(x, prefix + ".project_in", c.embedding_size, c.hidden);
  const ValueId place =
      net.op("Add", {net.positions(), net.number(kFirstPosition)}, {}, prefix + ".embed_positions.place");
  const ValueId where =
      net.embedding(place, prefix + ".embed_positions", c.context + kFirstPosition, c.hidden);
  x = net.op("Add", {x, where}, {}, prefix + ".embed");
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    x = block(net, x, layer, fmt::format("{}.layers.{}", prefix, layer));
  x = net.last_position(x);
  if (c.norm_first) x = net.layer_norm(x, prefix + ".final_layer_norm", c.hidden);
  if (narrow) x = net.linear(x, prefix + ".project_out", c.hidden, c.embedding_size);
  x = c.tied ? net.linear_with(x, "lm_head", prefix + ".embed_tokens.weight", c.embedding_size, c.vocabulary)
             : net.linear(x, "lm_head", c.embedding_size, c.vocabulary);
  return net.finish(x, "logits");
}

}  // namespace pare
