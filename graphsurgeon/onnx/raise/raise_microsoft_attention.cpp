// com.microsoft's attention: the standard Attention, with masks as numbers to add.
#include <cmath>

#include "graphsurgeon/onnx/raise/raise_microsoft.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

// 0 or the mask's filter value, to be added to the scores; [batch, 1, queries, keys]. `like`: the queries,
// which give the type; `keys`: how many keys there are ([1]; for lengths).
ValueId mask_numbers(Steps& s, ValueId mask, ValueId like, ValueId keys) {
  const int rank = s.value(mask).shape.rank();
  ValueId seen;
  if (rank == 1) {
    const ValueId front = s.ints("mask_front", {0});
    const auto scalar = [&](const char* what, std::int64_t v) {
      return s.raiser().constant(s.node(), what, Tensor::from(DType::kI64, {}, Ints{v}));
    };
    const ValueId count = s.make("key_count", "Squeeze", {keys, front});
    const ValueId place = s.make("key_place", "Range", {scalar("mask_from", 0), count, scalar("mask_by", 1)});
    const ValueId length = s.make("key_length", "Cast", {mask}, {{"to", std::int64_t{7}}});
    const ValueId column = s.make("key_length_column", "Unsqueeze", {length, s.ints("mask_column", {1})});
    seen = s.make("seen", "Less", {place, column});
  } else if (rank == 2 || rank == 3) {
    seen = mask;
  } else {
    s.refuse("a mask whose rank is none of 1, 2, 3");
  }
  const ValueId one = s.number("mask_one", 1, like), number = s.make("mask_number", "CastLike", {seen, like});
  const ValueId filter = s.number("mask_filter", s.node().attr("mask_filter_value", -10000.0F), like);
  const ValueId bias = s.make("mask_bias", "Mul", {s.make("mask_hidden", "Sub", {one, number}), filter});
  const ValueId whole =
      s.make("mask", "Unsqueeze", {bias, s.ints("mask_axes", rank == 3 ? Ints{1} : Ints{1, 2})});
  if (rank == 3) return whole;
  // One row for all queries would do by ONNX's words, but ONNX Runtime's Attention wants one each.
  const ValueId queries = s.shape_part("mask_queries", like, 1, 2), one_each = s.ints("mask_ones", {1, 1});
  const ValueId grid = s.make("mask_grid", "Concat", {one_each, queries, s.ints("mask_one_last", {1})},
                              {{"axis", std::int64_t{0}}});
  return s.make("mask_rows", "Expand", {whole, grid});
}

struct Parts {
  ValueId q, k, v, past_k = ValueId::kNone, past_v = ValueId::kNone, mask = ValueId::kNone,
                   bias = ValueId::kNone;
};

// out: output, present key, present value.
void attend(Steps& s, const Parts& p, const std::vector<ValueId>& out) {
  const Node& node = s.node();
  const std::int64_t heads = node.attr("num_heads", std::int64_t{0});
  if (heads < 1) fail(ErrorCode::kBadFile, "attribute num_heads is {}", heads);
  ValueId mask = p.bias;
  if (p.mask != ValueId::kNone) {
    ValueId keys = s.shape_part("keys", p.k, 1, 2);
    if (p.past_k != ValueId::kNone)
      keys = s.make("all_keys", "Add", {keys, s.shape_part("past_keys", p.past_k, 2, 3)});
    const ValueId numbers = mask_numbers(s, p.mask, p.q, keys);
    mask = mask == ValueId::kNone ? numbers : s.make("mask_and_bias", "Add", {numbers, mask});
  }
  Attributes attrs{{"q_num_heads", heads}, {"kv_num_heads", heads}};
  if (node.has_attr("scale") && node.attr("scale", 0.0F) != 0) attrs["scale"] = node.attr("scale", 0.0F);
  if (node.attr("unidirectional", std::int64_t{0}) != 0) attrs["is_causal"] = std::int64_t{1};
  s.last("Attention", {p.q, p.k, p.v, mask, p.past_k, p.past_v}, attrs, out);
}

std::vector<ValueId> split(Steps& s, const char* what, ValueId x, const Ints& sizes, std::int64_t axis) {
  Node node;
  node.name = raised_name(s.node()) + "_" + what;
  node.op = "Split";
  node.in = {x, s.ints((std::string(what) + "_sizes").c_str(), sizes)};
  node.attrs["axis"] = axis;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    node.out.push_back(s.raiser().temporary(s.node(), (std::string(what) + "_" + std::to_string(i)).c_str()));
  const std::vector<ValueId> out = node.out;
  s.raiser().emit(std::move(node));
  return out;
}

std::int64_t last_size(Steps& s, ValueId id) {
  const Shape& shape = s.value(id).shape;
  return shape.rank() < 1 || !shape.dims.back().known() ? -1 : shape.dims.back().value;
}

bool raise_multi_head(Raiser& r, Node& node) {
  Steps s(r, node);
  Parts p;
  p.q = s.need(0);
  if (s.in(1) == ValueId::kNone || s.in(2) == ValueId::kNone) s.refuse("packed queries, keys and values");
  p.k = s.in(1), p.v = s.in(2);
  if (s.value(p.k).shape.rank() > 3) s.refuse("keys and values that are packed, or come by heads");
  if (s.in(8) != ValueId::kNone || s.in(9) != ValueId::kNone) s.refuse("shared buffers or beams");
  if (s.wants(3)) s.refuse("scores as an output");
  if (const ValueId bias = s.in(3); bias != ValueId::kNone) {
    const std::int64_t all = last_size(s, bias);
    std::int64_t values = last_size(s, p.v);
    if (all < 0) s.refuse("a bias of unknown size");
    if (values < 0) values = all / 3;
    const Ints sizes{(all - values) / 2, (all - values) / 2, values};
    const std::vector<ValueId> parts = split(s, "bias", bias, sizes, 0);
    p.q = s.make("q_biased", "Add", {p.q, parts[0]});
    p.k = s.make("k_biased", "Add", {p.k, parts[1]});
    p.v = s.make("v_biased", "Add", {p.v, parts[2]});
  }
  p.mask = s.in(4), p.bias = s.in(5), p.past_k = s.in(6), p.past_v = s.in(7);
  attend(s, p, node.out);
  return false;
}

// x [batch, sequence, all three] into queries, keys and values; past and present are [2, batch, heads, ...].
void attend_projected(Steps& s, ValueId x, std::int64_t all, ValueId mask, ValueId past, ValueId bias) {
  const Node& node = s.node();
  if (node.attr("do_rotary", std::int64_t{0}) != 0) s.refuse("do_rotary");
  if (node.attr("past_present_share_buffer", std::int64_t{0}) != 0) s.refuse("shared buffers");
  Ints sizes = node.attr_ints("qkv_hidden_sizes");
  if (sizes.empty() && all > 0 && all % 3 == 0) sizes = {all / 3, all / 3, all / 3};
  if (sizes.size() != 3) s.refuse("a projection of unknown size");
  const std::vector<ValueId> qkv = split(s, "qkv", x, sizes, 2);
  Parts p{qkv[0], qkv[1], qkv[2]};
  p.mask = mask, p.bias = bias;
  const ValueId front = s.ints("front", {0});
  if (past != ValueId::kNone) {
    const std::vector<ValueId> parts = split(s, "past", past, {1, 1}, 0);
    p.past_k = s.make("past_key", "Squeeze", {parts[0], front});
    p.past_v = s.make("past_value", "Squeeze", {parts[1], front});
  }
  if (!s.wants(1)) return attend(s, p, {node.out.at(0)});
  const ValueId key = s.raiser().temporary(node, "present_key"),
                value = s.raiser().temporary(node, "present_value");
  attend(s, p, {node.out.at(0), key, value});
  const ValueId key_first = s.make("present_key_first", "Unsqueeze", {key, front}),
                value_second = s.make("present_value_second", "Unsqueeze", {value, front});
  s.last("Concat", {key_first, value_second}, {{"axis", std::int64_t{0}}}, {node.out[1]});
}

bool raise_attention(Raiser& r, Node& node) {
  Steps s(r, node);
  ValueId x = s.make("projected", "MatMul", {s.need(0), s.need(1)});
  if (s.in(2) != ValueId::kNone) x = s.make("projected_biased", "Add", {x, s.in(2)});
  attend_projected(s, x, last_size(s, s.need(1)), s.in(3), s.in(4), s.in(5));
  return false;
}

bool raise_q_attention(Raiser& r, Node& node) {
  Steps s(r, node);
  const ValueId input = s.make("input", "DequantizeLinear", {s.need(0), s.need(3), s.in(6)});
  const ValueId weight =
      s.make("weight", "DequantizeLinear", {s.need(1), s.need(4), s.in(7)}, {{"axis", std::int64_t{1}}});
  const ValueId product = s.make("projected", "MatMul", {input, weight});
  const ValueId x = s.make("projected_biased", "Add", {product, s.need(2)});
  attend_projected(s, x, last_size(s, s.need(1)), s.in(5), s.in(8), ValueId::kNone);
  return false;
}

// position_ids [batch, sequence], or [1]: the place of the first token.
bool raise_rotary(Raiser& r, Node& node) {
  Steps s(r, node);
  if (node.attr("is_packed_batching", std::int64_t{0}) != 0) s.refuse("is_packed_batching");
  if (node.attr("scale", 1.0F) != 1) s.refuse("a scale");
  const ValueId x = s.need(0);
  const int rank = s.value(x).shape.rank();
  ValueId places = s.need(1);
  Attributes attrs;
  for (const char* key : {"interleaved", "num_heads", "rotary_embedding_dim"})
    if (node.has_attr(key)) attrs[key] = node.attr(key, std::int64_t{0});
  if (rank != 3 && rank != 4) s.refuse("an input of unknown rank");
  if (rank == 3 && node.attr("num_heads", std::int64_t{0}) == 0) {
    const std::int64_t half = last_size(s, s.need(2)), hidden = last_size(s, x);
    if (half < 1 || hidden < 1) s.refuse("heads of unknown size");
    attrs["num_heads"] = hidden / (2 * half);
  }
  if (s.value(places).shape.rank() < 0) s.refuse("position_ids of unknown rank");
  if (s.value(places).shape.rank() == 1) {
    const auto scalar = [&](const char* what, std::int64_t v) {
      return r.constant(node, what, Tensor::from(DType::kI64, {}, Ints{v}));
    };
    const ValueId front = s.ints("front", {0});
    const ValueId length_of = s.shape_part("length_of", x, rank - 2, rank - 1),
                  batch = s.shape_part("batch", x, 0, 1);
    const ValueId steps =
        s.make("steps", "Range",
               {scalar("from", 0), s.make("length", "Squeeze", {length_of, front}), scalar("by", 1)});
    const ValueId row = s.make("places", "Add", {steps, places});
    places = s.make("places_of_batch", "Expand",
                    {row, s.make("grid", "Concat", {batch, length_of}, {{"axis", std::int64_t{0}}})});
  }
  s.last("RotaryEmbedding", {x, s.need(2), s.need(3), places}, attrs);
  return false;
}

}  // namespace

std::vector<RaiseEntry> microsoft_attention_rules() {
  return {{"MultiHeadAttention", 0, raise_multi_head},
          {"Attention", 0, raise_attention},
          {"QAttention", 0, raise_q_attention},
          {"RotaryEmbedding", 0, raise_rotary}};
}

}  // namespace pare
