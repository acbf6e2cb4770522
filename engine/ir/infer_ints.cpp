#include "engine/ir/infer_ints.h"

#include <algorithm>

#include "engine/ir/infer_rules.h"
#include "engine/ir/slice.h"

namespace pare {
namespace {

using Ints = std::vector<SymInt>;

SymInt add(const SymInt& a, const SymInt& b, bool minus) {
  if (b.known && b.value == 0) return a;
  if (a.known && a.value == 0 && !minus) return b;
  std::int64_t value = 0;
  if (!a.known || !b.known) return {};
  const bool overflow = minus ? __builtin_sub_overflow(a.value, b.value, &value)
                              : __builtin_add_overflow(a.value, b.value, &value);
  return overflow ? SymInt{} : SymInt::of(value);
}

SymInt multiply(const SymInt& a, const SymInt& b) {
  if (a.known && a.value == 1) return b;
  if (b.known && b.value == 1) return a;
  if ((a.known && a.value == 0) || (b.known && b.value == 0)) return SymInt::of(0);
  std::int64_t value = 0;
  if (!a.known || !b.known || __builtin_mul_overflow(a.value, b.value, &value)) return {};
  return SymInt::of(value);
}

SymInt divide(const SymInt& a, const SymInt& b) {
  if (b.known && b.value == 1) return a;
  if (!a.known || !b.known || b.value == 0 || (a.value == INT64_MIN && b.value == -1)) return {};
  return SymInt::of(a.value / b.value);
}

SymInt equal(const SymInt& a, const SymInt& b) {
  if (a.known && b.known) return SymInt::of(a.value == b.value ? 1 : 0);
  if (!a.known && !b.known) return !a.symbol.empty() && a.symbol == b.symbol ? SymInt::of(1) : SymInt{};
  const SymInt& number = a.known ? a : b;
  const SymInt& symbol = a.known ? b : a;
  return number.value < 0 && !symbol.symbol.empty() ? SymInt::of(0) : SymInt{};
}

SymInt choose(const SymInt& a, const SymInt& b, bool larger) {
  if (!a.known || !b.known) return {};
  return larger == (a.value > b.value) ? a : b;
}

// One of a's elements against one of b's; either may have one element for all.
template <typename Combine>
bool zip(InferContext& ctx, std::size_t count, Ints& out, Combine combine) {
  Ints a, b;
  if (!ctx.in_ints(0, a) || !ctx.in_ints(1, b)) return false;
  if ((a.size() != 1 && a.size() != count) || (b.size() != 1 && b.size() != count)) return false;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(combine(a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]));
  return true;
}

bool follow_shape(InferContext& ctx, std::size_t count, Ints& out) {
  const Shape& shape = ctx.in_shape(0);
  if (!shape.ranked) return false;
  const std::int64_t rank = shape.rank();
  std::int64_t start = ctx.node().attr("start", std::int64_t{0});
  start = std::clamp<std::int64_t>(start < 0 ? start + rank : start, 0, rank);
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(SymInt::of(shape.dims[static_cast<std::size_t>(start) + i]));
  return true;
}

bool follow_size(InferContext& ctx, Ints& out) {
  const Shape& shape = ctx.in_shape(0);
  if (!shape.ranked) return false;
  SymInt total = SymInt::of(1);
  for (const Dim& dim : shape.dims) total = multiply(total, SymInt::of(dim));
  out.push_back(total);
  return true;
}

bool follow_gather(InferContext& ctx, Ints& out) {
  Ints data;
  std::vector<std::int64_t> indices;
  if (ctx.in_shape(0).rank() != 1 || !ctx.in_ints(0, data) || !known_ints(ctx, 1, indices)) return false;
  const auto size = static_cast<std::int64_t>(data.size());
  for (std::int64_t index : indices) {
    if (index < -size || index >= size)
      ctx.bad(fmt::format("index {} is outside an axis of {} elements", index, size));
    out.push_back(data[static_cast<std::size_t>(index < 0 ? index + size : index)]);
  }
  return true;
}

bool follow_slice(InferContext& ctx, Ints& out) {
  Ints data;
  std::int64_t start = 0, end = 0, step = 1;
  if (ctx.in_shape(0).rank() != 1 || !ctx.in_ints(0, data)) return false;
  if (!known_int(ctx, 1, start) || !known_int(ctx, 2, end)) return false;
  if (ctx.has_input(4) && (!known_int(ctx, 4, step) || step == 0)) return false;
  const SliceAxis slice = resolve_slice(start, end, step, static_cast<std::int64_t>(data.size()));
  for (std::int64_t i = 0; i < slice.count; ++i)
    out.push_back(data[static_cast<std::size_t>(slice.start + i * slice.step)]);
  return true;
}

bool follow_concat(InferContext& ctx, Ints& out) {
  for (int i = 0; i < ctx.inputs(); ++i) {
    Ints part;
    if (ctx.in_shape(i).rank() != 1 || !ctx.in_ints(i, part)) return false;
    out.insert(out.end(), part.begin(), part.end());
  }
  return true;
}

bool follow_where(InferContext& ctx, std::size_t count, Ints& out) {
  Ints condition, yes, no;
  if (!ctx.in_ints(0, condition) || !ctx.in_ints(1, yes) || !ctx.in_ints(2, no)) return false;
  const auto at = [](const Ints& ints, std::size_t i) { return ints.size() == 1 ? ints[0] : ints[i]; };
  for (const Ints* ints : {&condition, &yes, &no})
    if (ints->size() != 1 && ints->size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const SymInt c = at(condition, i);
    out.push_back(!c.known ? SymInt{} : c.value != 0 ? at(yes, i) : at(no, i));
  }
  return true;
}

bool follow_filled(InferContext& ctx, std::size_t count, Ints& out) {
  const Tensor* value = ctx.node().attr_tensor("value");
  if (value == nullptr || value->size() != 1 || !is_integer(value->dtype()) || bits(value->dtype()) < 8)
    return false;
  out.assign(count, SymInt::of(value->to_ints()[0]));
  return true;
}

bool follow_range(InferContext& ctx, std::size_t count, Ints& out) {
  std::int64_t start = 0, step = 0;
  if (!known_int(ctx, 0, start) || !known_int(ctx, 2, step)) return false;
  SymInt next = SymInt::of(start);
  for (std::size_t i = 0; i < count; ++i, next = add(next, SymInt::of(step), false)) out.push_back(next);
  return true;
}

bool follow_product(InferContext& ctx, std::size_t count, Ints& out) {
  Ints data;
  if (count != 1 || ctx.in_shape(0).rank() != 1 || !ctx.in_ints(0, data)) return false;
  SymInt total = SymInt::of(1);
  for (const SymInt& element : data) total = multiply(total, element);
  out.push_back(total);
  return true;
}

}  // namespace

bool follow_ints(InferContext& ctx, const Shape& out_shape, std::vector<SymInt>& out) {
  out.clear();
  if (out_shape.rank() != 0 && out_shape.rank() != 1) return false;
  if (!out_shape.concrete()) return false;
  const std::int64_t elements = out_shape.rank() == 0 ? 1 : out_shape.dims[0].value;
  if (elements > kMaxFollowed) return false;
  const auto count = static_cast<std::size_t>(elements);
  const Node& node = ctx.node();
  if (!node.domain.empty()) return false;
  const std::string_view op = node.op;
  bool ok = false;
  if (op == "Shape") ok = follow_shape(ctx, count, out);
  if (op == "Size") ok = follow_size(ctx, out);
  if (op == "Gather") ok = follow_gather(ctx, out);
  if (op == "Slice") ok = follow_slice(ctx, out);
  if (op == "Concat") ok = follow_concat(ctx, out);
  if (op == "Where") ok = follow_where(ctx, count, out);
  if (op == "ConstantOfShape") ok = follow_filled(ctx, count, out);
  if (op == "Range") ok = follow_range(ctx, count, out);
  if (op == "ReduceProd") ok = follow_product(ctx, count, out);
  if (op == "Squeeze" || op == "Unsqueeze" || op == "Reshape" || op == "Identity" || op == "Cast" ||
      op == "Flatten")
    ok = ctx.in_ints(0, out);
  if (op == "Expand") {
    ok = ctx.in_ints(0, out);
    if (ok && out.size() == 1) out.assign(count, SymInt(out[0]));
  }
  if (op == "Add") ok = zip(ctx, count, out, [](const auto& a, const auto& b) { return add(a, b, false); });
  if (op == "Sub") ok = zip(ctx, count, out, [](const auto& a, const auto& b) { return add(a, b, true); });
  if (op == "Mul") ok = zip(ctx, count, out, multiply);
  if (op == "Div") ok = zip(ctx, count, out, divide);
  if (op == "Equal") ok = zip(ctx, count, out, equal);
  if (ctx.inputs() == 2 && (op == "Min" || op == "Max")) {
    const bool larger = op == "Max";
    ok = zip(ctx, count, out, [larger](const auto& a, const auto& b) { return choose(a, b, larger); });
  }
  return ok && out.size() == count;
}

}  // namespace pare
