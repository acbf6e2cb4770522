// GPT-2: learned positions, LayerNormalization, an mlp without a gate; its matrices are stored [in, out].
#include "engine/base/error.h"
#include "graphsurgeon/families/family.h"

namespace pare {

Graph build_gpt2(NetBuilder& net) {
  const ModelConfig& c = net.config();
  const std::string prefix = net.has("wte.weight") ? "" : "transformer.";
  ValueId x = net.embedding(net.input_ids(), prefix + "wte", c.vocabulary, c.hidden);
  x = net.op("Add", {x, net.embedding(net.positions(), prefix + "wpe", c.context, c.hidden)}, {},
             prefix + "embed");
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string block = fmt::format("{}h.{}", prefix, layer);
    ValueId y = net.layer_norm(x, block + ".ln_1", c.hidden);
    y = net.linear(y, block + ".attn.c_attn", c.hidden, 3 * c.hidden, true, true);
    const std::vector<ValueId> h = net.ops("Split", {y, net.ints({c.hidden, c.hidden, c.hidden})}, 3,
                                           {{"axis", std::int64_t{-1}}}, block + ".attn.split");
    y = net.attend(h[0], h[1], h[2], layer, block + ".attn.attention");
    y = net.linear(y, block + ".attn.c_proj", c.hidden, c.hidden, true, true);
    x = net.op("Add", {x, y}, {}, block + ".add_attention");
    y = net.layer_norm(x, block + ".ln_2", c.hidden);
    y = net.linear(y, block + ".mlp.c_fc", c.hidden, c.intermediate, true, true);
    y = net.activate(y, c.activation, block + ".mlp.act");
    y = net.linear(y, block + ".mlp.c_proj", c.intermediate, c.hidden, true, true);
    x = net.op("Add", {x, y}, {}, block + ".add_mlp");
  }
  x = net.layer_norm(net.last_position(x), prefix + "ln_f", c.hidden);
  x = c.tied ? net.linear_with(x, "lm_head", prefix + "wte.weight", c.hidden, c.vocabulary)
             : net.linear(x, "lm_head", c.hidden, c.vocabulary);
  return net.finish(x, "logits");
}

}  // namespace pare
