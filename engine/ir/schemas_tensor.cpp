// Data movement: the elements stay, their places change.
#include <algorithm>
#include <map>

#include "engine/ir/infer_rules.h"
#include "engine/ir/schema_groups.h"
#include "engine/ir/slice.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

Shape of_rank(std::size_t rank) { return Shape(std::vector<Dim>(rank)); }

// Cancels what both sides share: symbols one by one, numbers into one quotient. False when symbols are left
// on the lower side, or something is unknown.
bool quotient(const std::vector<Dim>& upper, const std::vector<Dim>& lower, Dim& out) {
  std::map<std::string, int> symbols;
  Dim above = Dim::of(1), below = Dim::of(1);
  for (const Dim& dim : upper) {
    if (dim.known()) {
      above = product(above, dim);
    } else {
      if (dim.symbol.empty()) return false;
      ++symbols[dim.symbol];
    }
  }
  for (const Dim& dim : lower) {
    if (dim.known()) {
      below = product(below, dim);
    } else if (dim.symbol.empty() || --symbols[dim.symbol] < 0) {
      return false;
    }
  }
  if (!above.known() || !below.known() || below.value == 0 || above.value % below.value != 0) return false;
  out = Dim::of(above.value / below.value);
  for (const auto& entry : symbols) {
    if (entry.second == 0) continue;
    if (entry.second != 1 || !out.known() || out.value != 1) return false;
    out = Dim::named(entry.first);
  }
  return true;
}

void reshape(InferContext& ctx) {
  const DType type = ctx.in_dtype(0);
  const Shape& data = ctx.in_shape(0);
  std::vector<SymInt> wanted;
  if (!ctx.in_ints(1, wanted)) return ctx.set_out(0, type, {});
  const bool zero_is_zero = ctx.node().attr("allowzero", std::int64_t{0}) != 0;
  std::vector<Dim> dims;
  int open = -1;
  bool all = true;  // every other size is known or a symbol
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const SymInt& size = wanted[i];
    if (size.known && size.value == -1) {
      if (open >= 0) ctx.bad("the shape holds -1 twice");
      open = static_cast<int>(i);
      dims.push_back(Dim{});
    } else if (size.known && size.value == 0 && !zero_is_zero) {
      if (data.ranked && static_cast<int>(i) >= data.rank())
        ctx.bad("the shape copies a size that " + to_string(data) + " does not have");
      dims.push_back(data.ranked ? data.dims[i] : Dim{});
    } else {
      if (size.known && size.value < 0) ctx.bad(fmt::format("the shape holds {}", size.value));
      dims.push_back(size.dim());
    }
    if (static_cast<int>(i) != open) all = all && (dims.back().known() || !dims.back().symbol.empty());
  }
  if (data.ranked && all) {
    std::vector<Dim> rest = dims;
    if (open >= 0) rest.erase(rest.begin() + open);
    Dim left;
    const bool zero =
        std::any_of(rest.begin(), rest.end(), [](const Dim& d) { return d.known() && d.value == 0; });
    if (!zero && quotient(data.dims, rest, left)) {
      if (open >= 0) dims[static_cast<std::size_t>(open)] = left;
      if (open < 0 && left.known() && left.value != 1)
        ctx.bad(to_string(data) + " has not as many elements as " + to_string(Shape(dims)));
    } else if (data.concrete() && Shape(rest).concrete()) {
      if (open >= 0 && zero) ctx.bad("the shape holds -1 and 0");
      if (open >= 0 || element_count(data.sizes()) != element_count(Shape(rest).sizes()))
        ctx.bad(to_string(data) + " cannot take the shape " + to_string(Shape(dims)));
    }
  }
  ctx.set_out(0, type, Shape(std::move(dims)));
}

void transpose(InferContext& ctx) {
  const Shape& data = ctx.in_shape(0);
  Ints perm = ctx.node().attr_ints("perm");
  if (!data.ranked) return ctx.set_out(0, ctx.in_dtype(0), perm.empty() ? Shape() : of_rank(perm.size()));
  const auto rank = static_cast<std::size_t>(data.rank());
  if (perm.empty())
    for (std::size_t i = 0; i < rank; ++i) perm.push_back(static_cast<std::int64_t>(rank - 1 - i));
  if (perm.size() != rank || checked_axes(ctx, perm, data.rank()).size() != rank)
    ctx.bad("attribute perm " + to_string(perm) + " does not fit " + to_string(data));
  std::vector<Dim> dims;
  for (const std::int64_t axis : perm)
    dims.push_back(data.dims[static_cast<std::size_t>(checked_axis(ctx, axis, data.rank()))]);
  ctx.set_out(0, ctx.in_dtype(0), Shape(std::move(dims)));
}

void slice(InferContext& ctx) {
  const DType type = ctx.in_dtype(0);
  Shape shape = ctx.in_shape(0);
  if (!shape.ranked) return ctx.set_out(0, type, {});
  const int rank = shape.rank();
  std::vector<SymInt> starts, ends, steps;
  Ints axes;
  if (!ctx.in_ints(1, starts) || !ctx.in_ints(2, ends) || (ctx.has_input(3) && !known_ints(ctx, 3, axes)))
    return ctx.set_out(0, type, of_rank(shape.dims.size()));
  if (!ctx.has_input(3))
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  steps.assign(starts.size(), SymInt::of(1));
  if (ctx.has_input(4) && !ctx.in_ints(4, steps)) steps.assign(starts.size(), SymInt{});
  if (starts.size() != ends.size() || starts.size() != axes.size() || starts.size() != steps.size())
    ctx.bad(fmt::format("{} starts, {} ends, {} axes, {} steps", starts.size(), ends.size(), axes.size(),
                        steps.size()));
  checked_axes(ctx, axes, rank);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Dim& dim = shape.dims[static_cast<std::size_t>(checked_axis(ctx, axes[i], rank))];
    const SymInt &start = starts[i], &end = ends[i], &step = steps[i];
    if (step.known && step.value == 0) ctx.bad("a step is 0");
    const bool numbers = start.known && end.known && step.known;
    if (numbers && dim.known()) {
      dim = Dim::of(resolve_slice(start.value, end.value, step.value, dim.value).count);
    } else if (start.known && start.value == 0 && step.known && step.value == 1 &&
               (end.known ? end.value > INT32_MAX - 1 : !end.symbol.empty() && end.symbol == dim.symbol)) {
      // the whole axis
    } else {
      dim = Dim{};
    }
  }
  ctx.set_out(0, type, shape);
}

void concat(InferContext& ctx) {
  const DType type = common_dtype(ctx, 0, ctx.inputs());
  Shape out;
  for (int i = 0; i < ctx.inputs(); ++i) {
    const Shape& part = ctx.in_shape(i);
    if (!part.ranked) return ctx.set_out(0, type, out.ranked ? of_rank(out.dims.size()) : Shape());
    const int rank = part.rank();
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), rank);
    if (i == 0) {
      out = part;
      continue;
    }
    if (rank != out.rank())
      ctx.bad("inputs " + to_string(out) + " and " + to_string(part) + " differ in rank");
    for (int d = 0; d < rank; ++d) {
      const auto at = static_cast<std::size_t>(d);
      Dim& size = out.dims[at];
      if (d != axis) {
        size = unify(ctx, size, part.dims[at], "sizes beside the concatenated axis");
      } else if (part.dims[at].known() && part.dims[at].value == 0) {
        // adds nothing
      } else if (size.known() && size.value == 0) {
        size = part.dims[at];
      } else {
        std::int64_t sum = 0;
        const bool known = size.known() && part.dims[at].known() &&
                           !__builtin_add_overflow(size.value, part.dims[at].value, &sum);
        size = known ? Dim::of(sum) : Dim{};
      }
    }
  }
  ctx.set_out(0, type, out);
}

void gather(InferContext& ctx) {
  const Shape &data = ctx.in_shape(0), &indices = ctx.in_shape(1);
  Shape out;
  if (data.ranked && indices.ranked) {
    const int axis = checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), data.rank());
    out = Shape(std::vector<Dim>(data.dims.begin(), data.dims.begin() + axis));
    out.dims.insert(out.dims.end(), indices.dims.begin(), indices.dims.end());
    out.dims.insert(out.dims.end(), data.dims.begin() + axis + 1, data.dims.end());
  }
  ctx.set_out(0, ctx.in_dtype(0), out);
}

void gather_elements(InferContext& ctx) { ctx.set_out(0, ctx.in_dtype(0), ctx.in_shape(1)); }

void gather_nd(InferContext& ctx) {
  const Shape &data = ctx.in_shape(0), &indices = ctx.in_shape(1);
  Shape out;
  if (data.ranked && indices.ranked && indices.rank() > 0 && indices.dims.back().known()) {
    const std::int64_t batch = ctx.node().attr("batch_dims", std::int64_t{0});
    const std::int64_t last = indices.dims.back().value;
    if (batch < 0 || batch >= indices.rank() || last > data.rank() - batch)
      ctx.bad("indices " + to_string(indices) + " do not fit " + to_string(data));
    out = Shape(std::vector<Dim>(indices.dims.begin(), indices.dims.end() - 1));
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch); ++i)
      out.dims[i] = unify(ctx, data.dims[i], indices.dims[i], "batch axes of data and indices");
    out.dims.insert(out.dims.end(), data.dims.begin() + batch + last, data.dims.end());
  }
  ctx.set_out(0, ctx.in_dtype(0), out);
}

void same(InferContext& ctx) { same_as_input(ctx); }

void trilu(InferContext& ctx) {
  need_rank_at_least(ctx, 0, 2);
  need_one_or(ctx, 1);
  same_as_input(ctx);
}

void squeeze(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  Ints axes;
  const bool given = ctx.has_input(1);
  if (!shape.ranked || (given && !known_ints(ctx, 1, axes))) return ctx.set_out(0, ctx.in_dtype(0), {});
  if (!given) {  // every 1; only certain when all sizes are known
    if (!shape.concrete()) return ctx.set_out(0, ctx.in_dtype(0), {});
    for (int i = 0; i < shape.rank(); ++i)
      if (shape.dims[static_cast<std::size_t>(i)].value == 1) axes.push_back(i);
  }
  const std::vector<int> gone = checked_axes(ctx, axes, shape.rank());
  for (auto axis = gone.rbegin(); axis != gone.rend(); ++axis) {
    const auto where = shape.dims.begin() + *axis;
    if (where->known() && where->value != 1)
      ctx.bad(fmt::format("axis {} of {} is not 1", *axis, to_string(ctx.in_shape(0))));
    shape.dims.erase(where);
  }
  ctx.set_out(0, ctx.in_dtype(0), shape);
}

void unsqueeze(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  Ints axes;
  if (!shape.ranked || !known_ints(ctx, 1, axes)) return ctx.set_out(0, ctx.in_dtype(0), {});
  const int rank = shape.rank() + static_cast<int>(axes.size());
  for (const int axis : checked_axes(ctx, axes, rank))
    shape.dims.insert(shape.dims.begin() + axis, Dim::of(1));
  ctx.set_out(0, ctx.in_dtype(0), shape);
}

void flatten(InferContext& ctx) {
  const Shape& shape = ctx.in_shape(0);
  if (!shape.ranked) return ctx.set_out(0, ctx.in_dtype(0), of_rank(2));
  std::int64_t axis = ctx.node().attr("axis", std::int64_t{1});
  if (axis < -shape.rank() || axis > shape.rank())
    ctx.bad(fmt::format("axis {} is outside {}", axis, to_string(shape)));
  if (axis < 0) axis += shape.rank();
  Dim before = Dim::of(1), after = Dim::of(1);
  for (int i = 0; i < shape.rank(); ++i) {
    Dim& side = i < axis ? before : after;
    side = product(side, shape.dims[static_cast<std::size_t>(i)]);
  }
  ctx.set_out(0, ctx.in_dtype(0), Shape({before, after}));
}

void expand(InferContext& ctx) {
  ctx.set_out(0, ctx.in_dtype(0), broadcast(ctx, ctx.in_shape(0), sizes_input(ctx, 1)));
}

void split(InferContext& ctx) {
  const Shape& data = ctx.in_shape(0);
  const int parts = ctx.outputs();
  Ints sizes;
  const bool given = ctx.has_input(1);
  const bool known = given && known_ints(ctx, 1, sizes);
  if (known && static_cast<int>(sizes.size()) != parts)
    ctx.bad(fmt::format("{} sizes for {} outputs", sizes.size(), parts));
  if (!data.ranked) {
    for (int i = 0; i < parts; ++i) ctx.set_out(i, ctx.in_dtype(0), {});
    return;
  }
  const auto axis =
      static_cast<std::size_t>(checked_axis(ctx, ctx.node().attr("axis", std::int64_t{0}), data.rank()));
  const Dim whole = data.dims[axis];
  if (known && whole.known()) {
    std::int64_t sum = 0;
    for (const std::int64_t size : sizes)
      if (size < 0 || __builtin_add_overflow(sum, size, &sum)) ctx.bad("a size is negative or too large");
    if (sum != whole.value) ctx.bad(fmt::format("sizes sum to {}, the axis has {}", sum, whole.value));
  }
  if (!given && whole.known()) {  // equal parts, the last smaller
    const std::int64_t wanted = ctx.node().attr("num_outputs", std::int64_t{parts});
    if (wanted != parts) ctx.bad(fmt::format("num_outputs is {}, the node has {} outputs", wanted, parts));
    const std::int64_t each = (whole.value + parts - 1) / parts;
    for (int i = 0; i < parts; ++i)
      sizes.push_back(std::clamp<std::int64_t>(whole.value - each * i, 0, each));
  }
  for (int i = 0; i < parts; ++i) {
    Shape shape = data;
    const auto at = static_cast<std::size_t>(i);
    shape.dims[axis] = at < sizes.size() ? Dim::of(sizes[at]) : Dim{};
    ctx.set_out(i, ctx.in_dtype(0), shape);
  }
}

void pad(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  Ints pads, axes;
  if (!shape.ranked) return ctx.set_out(0, ctx.in_dtype(0), {});
  const auto rank = static_cast<std::size_t>(shape.rank());
  if (!known_ints(ctx, 1, pads) || (ctx.has_input(3) && !known_ints(ctx, 3, axes)))
    return ctx.set_out(0, ctx.in_dtype(0), of_rank(rank));
  if (!ctx.has_input(3))
    for (std::size_t i = 0; i < rank; ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (pads.size() != 2 * axes.size()) ctx.bad(fmt::format("{} pads for {} axes", pads.size(), axes.size()));
  checked_axes(ctx, axes, shape.rank());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Dim& dim = shape.dims[static_cast<std::size_t>(checked_axis(ctx, axes[i], shape.rank()))];
    constexpr std::int64_t kLargest = std::int64_t{1} << 60;  // beyond any memory; sums of two stay in int64
    for (const std::int64_t side : {pads[i], pads[i + axes.size()]})
      if (side < -kLargest || side > kLargest) ctx.bad(fmt::format("a pad is {}", side));
    const std::int64_t extra = pads[i] + pads[i + axes.size()];
    std::int64_t size = 0;
    if (extra == 0) continue;
    if (!dim.known()) {
      dim = Dim{};
      continue;
    }
    if (__builtin_add_overflow(dim.value, extra, &size) || size < 0)
      ctx.bad(
          fmt::format("pads {} and {} do not fit a size of {}", pads[i], pads[i + axes.size()], dim.value));
    dim = Dim::of(size);
  }
  ctx.set_out(0, ctx.in_dtype(0), shape);
}

void tile(InferContext& ctx) {
  Shape shape = ctx.in_shape(0);
  std::vector<SymInt> repeats;
  if (!shape.ranked) return ctx.set_out(0, ctx.in_dtype(0), {});
  if (!ctx.in_ints(1, repeats)) return ctx.set_out(0, ctx.in_dtype(0), of_rank(shape.dims.size()));
  if (repeats.size() != shape.dims.size())
    ctx.bad(fmt::format("{} repeats for {}", repeats.size(), to_string(shape)));
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i].known && repeats[i].value < 0) ctx.bad("a repeat is negative");
    shape.dims[i] = product(shape.dims[i], repeats[i].dim());
  }
  ctx.set_out(0, ctx.in_dtype(0), shape);
}

void depth_to_space(InferContext& ctx) {
  need_rank(ctx, 0, 4);
  const Shape& in = ctx.in_shape(0);
  const std::int64_t b = ctx.node().attr("blocksize", std::int64_t{0});
  if (b < 1 || b > 65536) ctx.bad(fmt::format("attribute blocksize is {}", b));
  if (!in.ranked) return ctx.set_out(0, ctx.in_dtype(0), of_rank(4));
  Dim channels = in.dims[1];
  if (channels.known()) {
    if (channels.value % (b * b) != 0)
      ctx.bad(fmt::format("{} channels in blocks of {}", channels.value, b * b));
    channels = Dim::of(channels.value / (b * b));
  }
  ctx.set_out(
      0, ctx.in_dtype(0),
      Shape({in.dims[0], channels, product(in.dims[2], Dim::of(b)), product(in.dims[3], Dim::of(b))}));
}

void space_to_depth(InferContext& ctx) {
  need_rank(ctx, 0, 4);
  const Shape& in = ctx.in_shape(0);
  const std::int64_t b = ctx.node().attr("blocksize", std::int64_t{0});
  if (b < 1 || b > 65536) ctx.bad(fmt::format("attribute blocksize is {}", b));
  if (!in.ranked) return ctx.set_out(0, ctx.in_dtype(0), of_rank(4));
  const auto part = [&](const Dim& dim) {
    if (!dim.known()) return Dim{};
    if (dim.value % b != 0) ctx.bad(fmt::format("a side of {} in blocks of {}", dim.value, b));
    return Dim::of(dim.value / b);
  };
  ctx.set_out(0, ctx.in_dtype(0),
              Shape({in.dims[0], product(in.dims[1], Dim::of(b * b)), part(in.dims[2]), part(in.dims[3])}));
}

constexpr OpSchema kSchemas[] = {
    {"", "Concat", 1, -1, 1, 1, concat},       {"", "DepthToSpace", 1, 1, 1, 1, depth_to_space},
    {"", "Expand", 2, 2, 1, 1, expand},        {"", "Flatten", 1, 1, 1, 1, flatten},
    {"", "Gather", 2, 2, 1, 1, gather},        {"", "GatherElements", 2, 2, 1, 1, gather_elements},
    {"", "GatherND", 2, 2, 1, 1, gather_nd},   {"", "Pad", 2, 4, 1, 1, pad},
    {"", "Reshape", 2, 2, 1, 1, reshape},      {"", "ReverseSequence", 2, 2, 1, 1, same},
    {"", "ScatterElements", 3, 3, 1, 1, same}, {"", "ScatterND", 3, 3, 1, 1, same},
    {"", "Slice", 3, 5, 1, 1, slice},          {"", "SpaceToDepth", 1, 1, 1, 1, space_to_depth},
    {"", "Split", 1, 2, 1, -1, split},         {"", "Squeeze", 1, 2, 1, 1, squeeze},
    {"", "TensorScatter", 2, 3, 1, 1, same},   {"", "Tile", 2, 2, 1, 1, tile},
    {"", "Transpose", 1, 1, 1, 1, transpose},  {"", "Trilu", 1, 2, 1, 1, trilu},
    {"", "Unsqueeze", 2, 2, 1, 1, unsqueeze},
};

}  // namespace

std::span<const OpSchema> tensor_schemas() { return kSchemas; }

}  // namespace pare
