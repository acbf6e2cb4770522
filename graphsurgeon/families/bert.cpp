// BERT encoders (MiniLM and others that embed sentences): input_ids, attention_mask (1: a token, 0: padding)
// and token_type_ids, int64 [batch, sequence] -> last_hidden_state [batch, sequence, hidden].
#include "engine/base/error.h"
#include "graphsurgeon/families/family.h"

namespace pare {

Graph build_bert(NetBuilder& net) {
  const ModelConfig& c = net.config();
  if (net.options().with_cache || net.options().stepwise)
    throw make_error(ErrorCode::kUnsupported, "an encoder has no cache of keys and values")
        .at(c.where)
        .hint("leave --with-cache out");
  const std::string prefix = net.has("bert.embeddings.word_embeddings.weight") ? "bert." : "";
  const std::string embed = prefix + "embeddings";
  const ValueId ids = net.input_ids();
  const ValueId mask = net.input("attention_mask"), types = net.input("token_type_ids");
  ValueId x = net.embedding(ids, embed + ".word_embeddings", c.vocabulary, c.hidden);
  x = net.op("Add", {x, net.embedding(types, embed + ".token_type_embeddings", c.token_types, c.hidden)}, {},
             embed + ".add_types");
  x = net.op("Add", {x, net.embedding(net.positions(), embed + ".position_embeddings", c.context, c.hidden)},
             {}, embed + ".add_positions");
  x = net.layer_norm(x, embed + ".LayerNorm", c.hidden);
  const ValueId seen = net.op("Cast", {mask}, {{"to", static_cast<std::int64_t>(DType::kBool)}}, "mask.bool");
  // [batch, 1, sequence, sequence]: ONNX Runtime asks for the queries' axis in full.
  const ValueId length =
      net.op("Shape", {ids}, {{"start", std::int64_t{1}}, {"end", std::int64_t{2}}}, "mask.length");
  const ValueId full =
      net.op("Concat", {net.ints({1, 1}), length, net.ints({1})}, {{"axis", std::int64_t{0}}}, "mask.full");
  const ValueId keys =
      net.op("Expand", {net.op("Unsqueeze", {seen, net.ints({1, 2})}, {}, "mask.keys"), full}, {}, "mask");
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string block = fmt::format("{}encoder.layer.{}", prefix, layer);
    const std::string attn = block + ".attention.self";
    const ValueId q = net.linear(x, attn + ".query", c.hidden, c.hidden, true);
    const ValueId k = net.linear(x, attn + ".key", c.hidden, c.hidden, true);
    const ValueId v = net.linear(x, attn + ".value", c.hidden, c.hidden, true);
    ValueId y = net.op("Attention", {q, k, v, keys}, {{"q_num_heads", c.heads}, {"kv_num_heads", c.heads}},
                       attn + ".attention");
    y = net.linear(y, block + ".attention.output.dense", c.hidden, c.hidden, true);
    x = net.layer_norm(net.op("Add", {x, y}, {}, block + ".add_attention"),
                       block + ".attention.output.LayerNorm", c.hidden);
    y = net.linear(x, block + ".intermediate.dense", c.hidden, c.intermediate, true);
    y = net.activate(y, c.activation, block + ".intermediate.act");
    y = net.linear(y, block + ".output.dense", c.intermediate, c.hidden, true);
    x = net.layer_norm(net.op("Add", {x, y}, {}, block + ".add_mlp"), block + ".output.LayerNorm", c.hidden);
  }
  return net.finish(x, "last_hidden_state");
}

}  // namespace pare
