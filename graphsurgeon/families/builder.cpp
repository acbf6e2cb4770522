#include "graphsurgeon/families/builder.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/numeric/convert.h"
#include "engine/ops/sequence/cached_attention.h"

namespace pare {
namespace {

constexpr int kOpset = 23;  // of RMSNormalization, RotaryEmbedding and Attention

// longrope: texts up to the original context turn by the short factors, longer ones by the long. The tables
// then hold the rows of the short ones in front, and a text that is longer reads behind them.
bool turns_by_length(const RopeConfig& rope, std::int64_t positions) {
  return rope.type == "longrope" && rope.original_context > 0 && positions > rope.original_context &&
         rope.short_factor != rope.long_factor;
}

Tensor joined_rows(const Tensor& front, const Tensor& back) {
  Tensor all = Tensor::allocate(DType::kF32, {front.dims()[0] + back.dims()[0], back.dims()[1]});
  std::copy_n(front.as<float>(), front.size(), all.mut<float>());
  std::copy_n(back.as<float>(), back.size(), all.mut<float>() + front.size());
  return all;
}

// position_rows, moved behind the short rows when the last position is beyond the original context.
ValueId places_by_length(NetBuilder& net, const Graph& graph, std::int64_t original) {
  if (const ValueId known = graph.find_value("rope.places_out"); known != ValueId::kNone) return known;
  const ValueId last = net.op("Gather", {net.positions(), net.number(std::int64_t{-1})}, {}, "rope.last");
  const ValueId beyond = net.op("GreaterOrEqual", {last, net.number(original)}, {}, "rope.beyond");
  const ValueId one =
      net.op("Cast", {beyond}, {{"to", static_cast<std::int64_t>(DType::kI64)}}, "rope.beyond.number");
  const ValueId shift = net.op("Mul", {one, net.number(original)}, {}, "rope.shift");
  return net.op("Add", {net.position_rows(), shift}, {}, "rope.places");
}

}  // namespace

NetBuilder::NetBuilder(const ModelConfig& config, const WeightStore& store, const BuildOptions& options)
    : config_(config), store_(store), options_(options) {
  graph_.name = config.architecture.empty() ? config.model_type : config.architecture;
  graph_.opset = kOpset;
}

// --- operators

ValueId NetBuilder::op(const char* op_name, const std::vector<ValueId>& in, Attributes attrs,
                       const std::string& name) {
  return ops(op_name, in, 1, std::move(attrs), name)[0];
}

std::vector<ValueId> NetBuilder::ops(const char* op_name, const std::vector<ValueId>& in, std::size_t outs,
                                     Attributes attrs, const std::string& name) {
  Node node;
  node.op = op_name;
  node.name = name;
  node.in = in;
  while (!node.in.empty() && node.in.back() == ValueId::kNone) node.in.pop_back();
  node.attrs = std::move(attrs);
  for (std::size_t i = 0; i < outs; ++i) {
    Value value;
    value.name =
        name.empty() ? std::string(op_name) + "_out" : name + (i == 0 ? "_out" : fmt::format("_out{}", i));
    value.origin = value.name;
    node.out.push_back(graph_.add_value(std::move(value)));
  }
  const std::vector<ValueId> result = node.out;
  graph_.add_node(std::move(node));
  return result;
}

ValueId NetBuilder::ints(const std::vector<std::int64_t>& values) {
  return graph_.add_constant("ints", Tensor::ints(values));
}
ValueId NetBuilder::number(std::int64_t value) {
  return graph_.add_constant("number", Tensor::from<std::int64_t>(DType::kI64, {}, {value}));
}
ValueId NetBuilder::number(float value) { return graph_.add_constant("number", Tensor::scalar(value)); }
ValueId NetBuilder::constant(const std::string& name, Tensor tensor) {
  return graph_.add_constant(name, std::move(tensor));
}

ValueId NetBuilder::rms_norm(ValueId x, const std::string& module, std::int64_t size, float offset) {
  return op("RMSNormalization", {x, floats(module + ".weight", {size}, offset)},
            {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(config_.norm_epsilon)}}, module);
}

ValueId NetBuilder::layer_norm(ValueId x, const std::string& module, std::int64_t size) {
  return op("LayerNormalization", {x, floats(module + ".weight", {size}), floats(module + ".bias", {size})},
            {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(config_.norm_epsilon)}}, module);
}

ValueId NetBuilder::activate(ValueId x, const std::string& kind, const std::string& name) {
  if (kind == "silu" || kind == "swish")
    return op("Mul", {x, op("Sigmoid", {x}, {}, name + ".sigmoid")}, {}, name);
  if (kind == "gelu") return op("Gelu", {x}, {}, name);
  if (kind == "gelu_new" || kind == "gelu_pytorch_tanh" || kind == "gelu_fast")
    return op("Gelu", {x}, {{"approximate", std::string("tanh")}}, name);
  if (kind == "relu") return op("Relu", {x}, {}, name);
  throw make_error(ErrorCode::kUnsupported, "the activation '{}' is not known", kind)
      .at(config_.where)
      .hint("known are silu, gelu, gelu_new, gelu_pytorch_tanh and relu");
}

ValueId NetBuilder::gated_mlp(ValueId x, const std::string& module, std::int64_t intermediate,
                              const char* gate, const char* up, const char* down) {
  const std::string prefix = module + ".";
  const ValueId g = linear(x, prefix + gate, config_.hidden, intermediate, config_.mlp_bias);
  const ValueId u = linear(x, prefix + up, config_.hidden, intermediate, config_.mlp_bias);
  const ValueId product =
      op("Mul", {activate(g, config_.activation, prefix + "act"), u}, {}, prefix + "product");
  return linear(product, prefix + down, intermediate, config_.hidden, config_.mlp_bias);
}

// --- positions and attention

ValueId NetBuilder::input(const std::string& name) {
  Value value;
  value.name = value.origin = name;
  value.dtype = DType::kI64;
  value.shape = Shape({Dim::named("batch"), Dim::named("sequence")});
  const ValueId id = graph_.add_value(std::move(value));
  graph_.inputs.push_back(id);
  return id;
}

ValueId NetBuilder::input_ids() {
  if (ids_ == ValueId::kNone) ids_ = input("input_ids");
  return ids_;
}

ValueId NetBuilder::past(std::int64_t layer, const char* what) {
  Value value;
  value.name = value.origin = fmt::format("past_key_values.{}.{}", layer, what);
  if (const ValueId known = graph_.find_value(value.name); known != ValueId::kNone) return known;
  value.dtype = DType::kF32;
  value.shape =
      Shape({Dim::named("batch"), Dim::of(config_.kv_heads), Dim::named("past"), Dim::of(config_.head_size)});
  const ValueId id = graph_.add_value(std::move(value));
  graph_.inputs.push_back(id);
  return id;
}

ValueId NetBuilder::scalar_input(const std::string& name) {
  Value value;
  value.name = value.origin = name;
  value.dtype = DType::kI64;
  value.shape = Shape(Dims{});
  const ValueId id = graph_.add_value(std::move(value));
  graph_.inputs.push_back(id);
  return id;
}

// int64 scalar
ValueId NetBuilder::past_length() {
  if (past_length_ != ValueId::kNone) return past_length_;
  past_length_ =
      options_.stepwise ? scalar_input("past")
      : options_.with_cache
          ? op("Gather", {op("Shape", {past(0, "key")}, {}, "past.shape"), number(std::int64_t{2})}, {},
               "past.length")
          : number(std::int64_t{0});
  return past_length_;
}

ValueId NetBuilder::positions() {
  if (positions_ != ValueId::kNone) return positions_;
  const ValueId shape = op("Shape", {input_ids()}, {}, "positions.shape");
  const ValueId length = op("Gather", {shape, number(std::int64_t{1})}, {}, "positions.length");
  const bool grows = options_.with_cache || options_.stepwise;
  const ValueId end = grows ? op("Add", {past_length(), length}, {}, "positions.end") : length;
  positions_ = op("Range", {past_length(), end, number(std::int64_t{1})}, {}, "positions");
  return positions_;
}

ValueId NetBuilder::position_rows() {
  if (rows_ != ValueId::kNone) return rows_;
  const ValueId shape = op("Shape", {input_ids()}, {}, "position_ids.shape");
  rows_ = op("Expand", {positions(), shape}, {}, "position_ids");
  return rows_;
}

ValueId NetBuilder::rotate(ValueId x, std::int64_t heads, bool local, const std::string& name) {
  const RopeConfig& rope = local ? config_.local_rope : config_.rope;
  const auto i = static_cast<std::size_t>(local ? 1 : 0);
  const std::int64_t count = options_.context > 0 ? options_.context : config_.context;
  const bool both = turns_by_length(rope, count);
  if (cos_[i] == ValueId::kNone) {
    RopeTables tables = make_rope_tables(rope, config_.head_size, config_.context, count);
    if (both) {
      const RopeTables front =
          make_rope_tables(rope, config_.head_size, config_.context, rope.original_context);
      tables = {joined_rows(front.cosines, tables.cosines), joined_rows(front.sines, tables.sines)};
    }
    cos_[i] = constant(local ? "rope.local_cos" : "rope.cos", std::move(tables.cosines));
    sin_[i] = constant(local ? "rope.local_sin" : "rope.sin", std::move(tables.sines));
  }
  Attributes attrs = {{"num_heads", heads}};
  if (rope.interleaved) attrs["interleaved"] = std::int64_t{1};
  const std::int64_t dim = 2 * graph_.value(cos_[i]).constant.dims()[1];
  if (dim != config_.head_size) attrs["rotary_embedding_dim"] = dim;
  const ValueId places = both ? places_by_length(*this, graph_, rope.original_context) : position_rows();
  return op("RotaryEmbedding", {x, cos_[i], sin_[i], places}, std::move(attrs), name);
}

ValueId NetBuilder::norm_heads(ValueId x, const std::string& module, std::int64_t heads, float offset) {
  const ValueId split = op("Reshape", {x, ints({0, 0, heads, config_.head_size})}, {}, module + ".split");
  return op("Reshape", {rms_norm(split, module, config_.head_size, offset), ints({0, 0, -1})}, {},
            module + ".join");
}

// Bool [sequence, past + sequence]: the key is fewer than `window` places before the query.
ValueId NetBuilder::window_mask() {
  if (mask_ != ValueId::kNone) return mask_;
  const ValueId own = op("Shape", {positions()}, {}, "window.sequence");
  const ValueId length = op("Squeeze", {own}, {}, "window.length");
  const ValueId total = options_.with_cache ? op("Add", {past_length(), length}, {}, "window.total") : length;
  const ValueId keys =
      op("Range", {number(std::int64_t{0}), total, number(std::int64_t{1})}, {}, "window.keys");
  const ValueId queries = op("Unsqueeze", {positions(), ints({1})}, {}, "window.queries");
  const ValueId distance = op("Sub", {queries, keys}, {}, "window.distance");
  mask_ = op("Less", {distance, number(config_.window)}, {}, "window.mask");
  return mask_;
}

ValueId NetBuilder::attend(ValueId q, ValueId k, ValueId v, std::int64_t layer, const std::string& name) {
  Attributes attrs = {
      {"q_num_heads", config_.heads}, {"kv_num_heads", config_.kv_heads}, {"is_causal", std::int64_t{1}}};
  if (config_.query_scale != 0) attrs["scale"] = static_cast<float>(config_.query_scale);
  if (config_.attention_softcap != 0) attrs["softcap"] = static_cast<float>(config_.attention_softcap);
  if (options_.needed == nullptr && !options_.dequantize) {
    DType type = DType::kUndefined;
    const std::string module = name.substr(0, name.rfind('.'));
    if (const KvScales* scales = store_.kv_scales(module, type)) {
      k = quantized_cache(k, scales->key, type, module + ".k_cache");
      v = quantized_cache(v, scales->value, type, module + ".v_cache");
    }
  }
  if (options_.stepwise) {
    if (config_.is_local(layer) && config_.window < config_.context) attrs["window"] = config_.window;
    return attend_stepwise({q, k, v}, std::move(attrs), layer, name);
  }
  std::vector<ValueId> in = {q, k, v, ValueId::kNone};
  if (config_.is_local(layer) && config_.window < config_.context) in[3] = window_mask();
  if (!options_.with_cache) return op("Attention", in, std::move(attrs), name);
  in.push_back(past(layer, "key"));
  in.push_back(past(layer, "value"));
  const std::vector<ValueId> out = ops("Attention", in, 3, std::move(attrs), name);
  graph_.rename(out[1], fmt::format("present.{}.key", layer));
  graph_.rename(out[2], fmt::format("present.{}.value", layer));
  presents_.push_back(out[1]);
  presents_.push_back(out[2]);
  return out[0];
}

ValueId NetBuilder::attend_stepwise(const std::vector<ValueId>& in, Attributes attrs, std::int64_t layer,
                                    const std::string& name) {
  std::vector<ValueId> all = in;
  const Dim batch = Dim::named("batch"), heads = Dim::of(config_.kv_heads), size = Dim::of(config_.head_size);
  for (const char* what : {"key", "value"}) {
    Value value;
    value.name = value.origin = fmt::format("cache.{}.{}", layer, what);
    value.dtype = DType::kF32;
    value.shape = all.size() == 3 ? Shape({batch, heads, Dim::named("blocks"), size, Dim::of(kKeysOfBlock)})
                                  : Shape({batch, heads, Dim::named("room"), size});
    all.push_back(graph_.add_value(std::move(value)));
    graph_.inputs.push_back(all.back());
  }
  all.push_back(past_length());
  for (const char* what : {"key", "value"}) {
    const ValueId rows =
        op("Identity", {all[what[0] == 'k' ? 1 : 2]}, {}, fmt::format("{}.new_{}", name, what));
    graph_.rename(rows, fmt::format("new.{}.{}", layer, what));
    presents_.push_back(rows);
  }
  attrs.erase("is_causal");
  const ValueId y = op("CachedAttention", all, std::move(attrs), name);
  graph_.node(graph_.producer(y)).domain = "pare";
  return y;
}

ValueId NetBuilder::last_position(ValueId x) {
  if (!options_.stepwise) return x;
  return op("Gather", {x, ints({-1})}, {{"axis", std::int64_t{1}}}, "last_position");
}

Graph NetBuilder::finish(ValueId output, const std::string& name) {
  graph_.rename(output, name);
  graph_.value(output).origin = name;
  graph_.outputs.push_back(output);
  graph_.outputs.insert(graph_.outputs.end(), presents_.begin(), presents_.end());
  graph_.drop_unused_values();
  graph_.metadata["pare.family"] = config_.model_type;
  infer_shapes(graph_);
  verify(graph_);
  return std::move(graph_);
}

}  // namespace pare
