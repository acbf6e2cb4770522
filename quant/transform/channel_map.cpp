#include "quant/transform/channel_map.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/base/error.h"
#include "engine/ir/slice.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 24;

using Ints = std::vector<std::int64_t>;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::optional<Ints> constant_ints(const Graph& graph, const Node& node, std::size_t slot) {
  if (slot >= node.in.size() || node.in[slot] == ValueId::kNone) return Ints{};
  if (!graph.is_constant(node.in[slot])) return std::nullopt;
  const Tensor& t = graph.value(node.in[slot]).constant;
  Ints list;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (t.dtype() == DType::kI64) {
      list.push_back(t.as<std::int64_t>()[i]);
    } else if (t.dtype() == DType::kI32) {
      list.push_back(t.as<std::int32_t>()[i]);
    } else {
      return std::nullopt;
    }
  }
  return list;
}

// outer * length * inner view of one axis.
struct AxisView {
  std::int64_t outer = 1, length = 1, inner = 1;
  AxisView(const Dims& dims, int axis) : length(dims[at(axis)]) {
    for (int i = 0; i < axis; ++i) outer *= dims[at(i)];
    for (std::size_t i = at(axis) + 1; i < dims.size(); ++i) inner *= dims[i];
  }
};

// Elements `places` of one axis.
ChannelMap take(const ChannelMap& map, int axis, const Ints& places) {
  ChannelMap taken;
  taken.dims = map.dims;
  if (map.dims[at(axis)] == 1) {
    taken.channel = map.channel;
    return taken;
  }
  taken.dims[at(axis)] = static_cast<std::int64_t>(places.size());
  const AxisView view(map.dims, axis);
  for (std::int64_t o = 0; o < view.outer; ++o)
    for (const std::int64_t place : places)
      for (std::int64_t i = 0; i < view.inner; ++i)
        taken.channel.push_back(
            map.channel[static_cast<std::size_t>((o * view.length + place) * view.inner + i)]);
  return taken;
}

// The other way: an axis of `size` with the map's elements at `places`, -1 elsewhere.
bool put(const ChannelMap& map, int axis, const Ints& places, std::int64_t size, ChannelMap& wide) {
  wide.dims = map.dims;
  wide.dims[at(axis)] = size;
  if (element_count(wide.dims) > kMostElements) return false;
  wide.channel.assign(static_cast<std::size_t>(element_count(wide.dims)), -1);
  const AxisView view(map.dims, axis);
  std::vector<bool> taken(static_cast<std::size_t>(size), false);
  const auto again = [&](std::int64_t place) {
    const bool before = taken[static_cast<std::size_t>(place)];
    taken[static_cast<std::size_t>(place)] = true;
    return before;
  };
  std::vector<bool> repeated;  // this place was asked for before (Gather with equal indices)
  for (const std::int64_t place : places) repeated.push_back(again(place));
  for (std::int64_t o = 0; o < view.outer; ++o)
    for (std::size_t k = 0; k < places.size(); ++k)
      for (std::int64_t i = 0; i < view.inner; ++i) {
        const std::int64_t from = view.length == 1 ? 0 : static_cast<std::int64_t>(k);
        std::int32_t& to = wide.channel[static_cast<std::size_t>((o * size + places[k]) * view.inner + i)];
        const std::int32_t channel =
            map.channel[static_cast<std::size_t>((o * view.length + from) * view.inner + i)];
        if (repeated[k] && to != channel) return false;  // one element read as two channels, or also unscaled
        to = channel;
      }
  return true;
}

// What one axis keeps: places of Slice, Split output `out`, or Gather. Empty optional: not known.
struct Cut {
  int axis = 0;
  Ints places;
};

std::optional<std::vector<Cut>> cuts_of(const Graph& graph, const Node& node, int out) {
  const Shape& shape = graph.value(node.in[0]).shape;
  const int rank = shape.rank();
  if (rank < 1) return std::nullopt;
  const auto size = [&](std::int64_t axis) { return shape.dims[static_cast<std::size_t>(axis)].value; };
  const auto wrap = [&](std::int64_t axis) { return axis < 0 ? axis + rank : axis; };
  std::vector<Cut> cuts;
  if (node.is("Slice")) {
    const auto starts = constant_ints(graph, node, 1), ends = constant_ints(graph, node, 2),
               axes = constant_ints(graph, node, 3), steps = constant_ints(graph, node, 4);
    if (!starts || !ends || !axes || !steps) return std::nullopt;
    for (std::size_t i = 0; i < starts->size(); ++i) {
      const std::int64_t axis = wrap(axes->empty() ? static_cast<std::int64_t>(i) : (*axes)[i]);
      if (axis < 0 || axis >= rank || size(axis) < 0) return std::nullopt;
      const SliceAxis s =
          resolve_slice((*starts)[i], (*ends)[i], steps->empty() ? 1 : (*steps)[i], size(axis));
      Cut cut{static_cast<int>(axis), {}};
      for (std::int64_t k = 0; k < s.count; ++k) cut.places.push_back(s.start + k * s.step);
      cuts.push_back(std::move(cut));
    }
    return cuts;
  }
  if (node.is("Split")) {
    const std::int64_t axis = wrap(node.attr("axis", std::int64_t{0}));
    std::int64_t begin = 0;
    for (int i = 0; i <= out; ++i) {
      const ValueId piece = node.out[at(i)];
      if (piece == ValueId::kNone) return std::nullopt;
      const Shape& s = graph.value(piece).shape;
      if (s.rank() != rank || !s.dims[static_cast<std::size_t>(axis)].known()) return std::nullopt;
      const std::int64_t length = s.dims[static_cast<std::size_t>(axis)].value;
      if (i == out) {
        Cut cut{static_cast<int>(axis), {}};
        for (std::int64_t k = 0; k < length; ++k) cut.places.push_back(begin + k);
        return std::vector<Cut>{std::move(cut)};
      }
      begin += length;
    }
    return std::nullopt;
  }
  if (node.is("Gather")) {
    const std::int64_t axis = wrap(node.attr("axis", std::int64_t{0}));
    const auto places = constant_ints(graph, node, 1);
    if (!places || places->empty() || axis < 0 || axis >= rank || size(axis) < 0) return std::nullopt;
    if (graph.value(node.in[1]).constant.dims().size() > 1) return std::nullopt;
    Cut cut{static_cast<int>(axis), {}};
    for (const std::int64_t p : *places) cut.places.push_back(p < 0 ? p + size(axis) : p);
    for (const std::int64_t p : cut.places)
      if (p < 0 || p >= size(axis)) return std::nullopt;
    return std::vector<Cut>{std::move(cut)};
  }
  return std::nullopt;
}

// Axes along which all are alike become 1.
void compress(ChannelMap& map) {
  for (int axis = 0; axis < static_cast<int>(map.dims.size()); ++axis) {
    if (map.dims[at(axis)] <= 1) continue;
    const ChannelMap first = take(map, axis, {0});
    bool alike = true;
    for (std::int64_t k = 1; k < map.dims[at(axis)] && alike; ++k)
      alike = take(map, axis, {k}).channel == first.channel;
    if (alike) map = first;
  }
}

// Axes of equal products, counted from the back until nothing varies further left.
bool reshape(const Shape& from, const Shape& to, const ChannelMap& map, ChannelMap& inner) {
  struct Group {
    int in_begin, in_end, out_begin, out_end;
  };
  std::vector<Group> groups;
  int i = from.rank(), j = to.rank();
  const auto varies_before = [&](int end) {
    return std::any_of(map.dims.begin(), map.dims.begin() + end, [](std::int64_t d) { return d > 1; });
  };
  while (varies_before(j)) {
    if (i == 0) return false;
    Group group{i - 1, i, j - 1, j};
    const auto known = [](const Dim& d) { return d.known() && d.value > 0; };
    if (from.dims[at(i - 1)].same(to.dims[at(j - 1)]) && !from.dims[at(i - 1)].known()) {
      --i, --j;
      if (map.dims[at(j)] != 1) return false;
      continue;
    }
    if (!known(from.dims[at(i - 1)]) || !known(to.dims[at(j - 1)])) return false;
    std::int64_t a = from.dims[at(i - 1)].value, b = to.dims[at(j - 1)].value;
    while (a != b) {
      int& begin = a < b ? group.in_begin : group.out_begin;
      if (begin == 0) return false;
      const Dim& next = a < b ? from.dims[at(begin - 1)] : to.dims[at(begin - 1)];
      if (!known(next)) return false;
      --begin;
      (a < b ? a : b) *= next.value;
      if (a > kMostElements || b > kMostElements) return false;
    }
    i = group.in_begin;
    j = group.out_begin;
    groups.push_back(group);
  }
  inner.dims.assign(static_cast<std::size_t>(from.rank()), 1);
  std::int64_t count = 1;
  for (const Group& group : groups) {
    bool varies = false;
    for (int k = group.out_begin; k < group.out_end; ++k) varies = varies || map.dims[at(k)] > 1;
    for (int k = group.in_begin; varies && k < group.in_end; ++k) {
      inner.dims[at(k)] = from.dims[at(k)].value;
      count *= inner.dims[at(k)];
      if (count > kMostElements) return false;
    }
  }
  inner.channel.resize(static_cast<std::size_t>(count));
  std::vector<std::int64_t> index(inner.dims.size(), 0), outer(map.dims.size(), 0);
  for (std::int32_t& channel : inner.channel) {
    std::fill(outer.begin(), outer.end(), 0);
    for (const Group& group : groups) {
      std::int64_t flat = 0;
      for (int k = group.in_begin; k < group.in_end; ++k) flat = flat * from.dims[at(k)].value + index[at(k)];
      for (int k = group.out_end - 1; k >= group.out_begin; --k) {
        const std::int64_t size = to.dims[at(k)].value;
        outer[at(k)] = map.dims[at(k)] == 1 ? 0 : flat % size;
        flat /= size;
      }
    }
    std::int64_t place = 0;
    for (std::size_t k = 0; k < outer.size(); ++k) place = place * map.dims[k] + outer[k];
    channel = map.channel[static_cast<std::size_t>(place)];
    for (std::size_t k = index.size(); k-- > 0;) {
      if (++index[k] < inner.dims[k]) break;
      index[k] = 0;
    }
  }
  compress(inner);
  return true;
}

// Only this output of the node is read.
bool only_output(const Graph& graph, const Node& node, int out) {
  for (int i = 0; i < static_cast<int>(node.out.size()); ++i) {
    const ValueId other = node.out[at(i)];
    if (i != out && other != ValueId::kNone && (!graph.users(other).empty() || graph.is_output(other)))
      return false;
  }
  return true;
}

bool back_through_cut(const Graph& graph, const Node& node, int out, bool lone, const ChannelMap& map,
                      ChannelMap& inner) {
  const auto cuts = cuts_of(graph, node, out);
  const Shape& shape = graph.value(node.in[0]).shape;
  inner = map;
  if (node.is("Gather") && cuts && graph.value(node.in[1]).constant.dims().empty()) {
    const int axis = cuts->front().axis;  // a number takes the axis away
    inner.dims.insert(inner.dims.begin() + axis, 1);
  }
  if (lone && only_output(graph, node, out)) {
    // Everything may be scaled: along an axis where all are alike nothing needs to be known.
    std::vector<std::int64_t> axes;
    if (cuts) {
      for (const Cut& cut : *cuts) axes.push_back(cut.axis);
    } else if (node.is("Gather") && graph.value(node.in[1]).shape.rank() == 1) {
      const std::int64_t axis = node.attr("axis", std::int64_t{0});
      axes.push_back(axis < 0 ? axis + shape.rank() : axis);
    } else if (node.is("Slice") && node.in.size() > 3) {
      const auto given = constant_ints(graph, node, 3);
      if (!given) return false;
      for (const std::int64_t axis : *given) axes.push_back(axis < 0 ? axis + shape.rank() : axis);
    } else {
      return false;
    }
    if (std::all_of(axes.begin(), axes.end(), [&](std::int64_t axis) {
          return axis >= 0 && axis < static_cast<std::int64_t>(inner.dims.size()) &&
                 inner.dims[static_cast<std::size_t>(axis)] == 1;
        }))
      return true;
  }
  if (!cuts) return false;
  for (const Cut& cut : *cuts) {
    const std::int64_t size = shape.dims[at(cut.axis)].value;
    if (size < 0) return false;
    ChannelMap wide;
    if (!put(inner, cut.axis, cut.places, size, wide)) return false;
    inner = std::move(wide);
  }
  compress(inner);
  return true;
}

}  // namespace

ChannelMap ChannelMap::along(int rank, int axis, std::int64_t channels) {
  ChannelMap map;
  map.dims.assign(at(rank), 1);
  map.dims[at(axis)] = channels;
  for (std::int64_t c = 0; c < channels; ++c) map.channel.push_back(static_cast<std::int32_t>(c));
  return map;
}

bool ChannelMap::untouched() const {
  return std::all_of(channel.begin(), channel.end(), [](std::int32_t c) { return c < 0; });
}

bool only_axis(const ChannelMap& map, int axis) {
  for (int i = 0; i < static_cast<int>(map.dims.size()); ++i)
    if (i != axis && map.dims[at(i)] != 1) return false;
  return axis < static_cast<int>(map.dims.size());
}

bool broadcasts(const Dims& constant, const Dims& map) {
  for (std::size_t i = 0; i < std::min(constant.size(), map.size()); ++i) {
    const std::int64_t a = constant[constant.size() - 1 - i], b = map[map.size() - 1 - i];
    if (a != b && a != 1 && b != 1) return false;
  }
  return true;
}

bool unbroadcast(const Graph& graph, ValueId operand, const ChannelMap& map, ChannelMap& inner) {
  inner = map;
  if (graph.is_constant(operand)) return true;  // it grows where it repeats
  const Shape& shape = graph.value(operand).shape;
  if (shape.rank() < 0 || shape.rank() > static_cast<int>(map.dims.size())) return false;
  const std::size_t extra = map.dims.size() - at(shape.rank());
  for (std::size_t i = 0; i < map.dims.size(); ++i)
    if (map.dims[i] != 1 && (i < extra || shape.dims[i - extra].value != map.dims[i])) return false;
  inner.dims.erase(inner.dims.begin(), inner.dims.begin() + static_cast<std::ptrdiff_t>(extra));
  return true;
}

bool back_through_movement(const Graph& graph, const Node& node, int out, bool lone, const ChannelMap& map,
                           ChannelMap& inner) {
  if (node.in.empty() || node.in[0] == ValueId::kNone) return false;
  const Shape& from = graph.value(node.in[0]).shape;
  const Shape& to = graph.value(node.out[at(out)]).shape;
  if (from.rank() < 0 || to.rank() != static_cast<int>(map.dims.size())) return false;
  if (node.is("Transpose")) {
    Ints perm = node.attr_ints("perm");
    if (perm.empty())
      for (int i = from.rank(); i-- > 0;) perm.push_back(i);
    // out axis k is in axis perm[k]
    inner.dims.assign(perm.size(), 1);
    for (std::size_t k = 0; k < perm.size(); ++k) inner.dims[static_cast<std::size_t>(perm[k])] = map.dims[k];
    inner.channel.resize(map.channel.size());
    std::vector<std::int64_t> stride(perm.size(), 1), index(perm.size(), 0);
    for (std::size_t k = perm.size() - 1; k-- > 0;) stride[k] = stride[k + 1] * inner.dims[k + 1];
    for (const std::int32_t channel : map.channel) {
      std::int64_t place = 0;
      for (std::size_t k = 0; k < perm.size(); ++k)
        place += index[k] * stride[static_cast<std::size_t>(perm[k])];
      inner.channel[static_cast<std::size_t>(place)] = channel;
      for (std::size_t k = index.size(); k-- > 0;) {
        if (++index[k] < map.dims[k]) break;
        index[k] = 0;
      }
    }
    return true;
  }
  if (node.is("Reshape") || node.is("Flatten") || node.is("Squeeze") || node.is("Unsqueeze"))
    return reshape(from, to, map, inner);
  if (node.is("Slice") || node.is("Split") || node.is("Gather"))
    return back_through_cut(graph, node, out, lone, map, inner);
  if (node.is("Expand")) {
    for (int i = 0; i < to.rank(); ++i) {
      const int k = i - (to.rank() - from.rank());
      if (map.dims[at(i)] != 1 && (k < 0 || from.dims[at(k)].value != map.dims[at(i)])) return false;
    }
    inner = map;
    inner.dims.erase(inner.dims.begin(), inner.dims.begin() + (to.rank() - from.rank()));
    return true;
  }
  if (node.is("ReduceMean") || node.is("ReduceSum") || node.is("ReduceMax") || node.is("ReduceMin")) {
    // With the axes kept the map is the same, and must be 1 along them; without, 1s are put in.
    const auto axes = constant_ints(graph, node, 1);
    if (!axes || axes->empty()) return false;
    Ints sorted;
    for (const std::int64_t axis : *axes) sorted.push_back(axis < 0 ? axis + from.rank() : axis);
    std::sort(sorted.begin(), sorted.end());
    inner = map;
    const bool keep = node.attr("keepdims", std::int64_t{1}) != 0;
    for (const std::int64_t axis : sorted) {
      if (axis < 0 || axis > static_cast<std::int64_t>(inner.dims.size())) return false;
      if (!keep) inner.dims.insert(inner.dims.begin() + axis, 1);
      if (axis >= static_cast<std::int64_t>(inner.dims.size()) ||
          inner.dims[static_cast<std::size_t>(axis)] != 1)
        return false;
    }
    return static_cast<int>(inner.dims.size()) == from.rank();
  }
  if (node.is("Pad")) {
    const auto pads = constant_ints(graph, node, 1);
    const bool zeros = node.in.size() < 3 || node.in[2] == ValueId::kNone ||
                       (graph.is_constant(node.in[2]) && graph.value(node.in[2]).dtype == DType::kF32 &&
                        *graph.value(node.in[2]).constant.as<float>() == 0.0f);
    if (!pads || node.attr("mode", "constant") != "constant" || !zeros) return false;
    if (node.in.size() > 3 || pads->size() != 2 * map.dims.size()) return false;
    for (std::size_t i = 0; i < map.dims.size(); ++i)
      if (map.dims[i] != 1 && ((*pads)[i] != 0 || (*pads)[i + map.dims.size()] != 0)) return false;
    inner = map;
    return true;
  }
  return false;
}

bool back_through_concat(const Graph& graph, const Node& node, std::size_t i, std::int64_t& begin,
                         const ChannelMap& map, ChannelMap& inner) {
  const int rank = static_cast<int>(map.dims.size());
  std::int64_t axis = node.attr("axis", std::int64_t{0});
  if (axis < 0) axis += rank;
  const Shape& shape = graph.value(node.in[i]).shape;
  if (axis < 0 || axis >= rank || shape.rank() != rank) return false;
  inner = map;
  if (map.dims[static_cast<std::size_t>(axis)] == 1) return true;
  const Dim& length = shape.dims[static_cast<std::size_t>(axis)];
  if (!length.known()) return false;
  Ints places;
  for (std::int64_t k = 0; k < length.value; ++k) places.push_back(begin + k);
  begin += length.value;
  if (begin > map.dims[static_cast<std::size_t>(axis)]) return false;
  inner = take(map, static_cast<int>(axis), places);
  return true;
}

bool sees_nothing(const Graph& graph, const Use& use, const ChannelMap& map) {
  const Node& node = graph.node(use.node);
  if (node.is("Shape") || node.is("Size")) return true;
  if (use.slot != 0 || !(node.is("Slice") || node.is("Split") || node.is("Gather"))) return false;
  for (int out = 0; out < static_cast<int>(node.out.size()); ++out) {
    if (node.out[at(out)] == ValueId::kNone) continue;
    if (graph.users(node.out[at(out)]).empty() && !graph.is_output(node.out[at(out)])) continue;
    const auto cuts = cuts_of(graph, node, out);
    if (!cuts) return false;
    ChannelMap left = map;
    for (const Cut& cut : *cuts) {
      if (cut.axis >= static_cast<int>(left.dims.size())) return false;
      left = take(left, cut.axis, cut.places);
    }
    if (!left.untouched()) return false;
  }
  return true;
}

}  // namespace pare::quant
