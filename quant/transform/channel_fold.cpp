#include "quant/transform/channel_fold.h"

#include <algorithm>

#include "engine/base/error.h"
#include "quant/grid/linear_weight.h"
#include "quant/transform/channel_map.h"

namespace pare::quant {
namespace {

ValueId input(const Node& node, std::size_t i) { return i < node.in.size() ? node.in[i] : ValueId::kNone; }

bool is_float_constant(const Graph& graph, ValueId id) {
  return graph.is_constant(id) && graph.value(id).dtype == DType::kF32;
}

// Nothing varies along the axes from `axis` on.
bool alike_behind(const ChannelMap& map, std::size_t axis) {
  for (std::size_t i = axis; i < map.dims.size(); ++i)
    if (map.dims[i] != 1) return false;
  return true;
}

class Walk {
 public:
  Walk(const Graph& graph, bool clips, ChannelFold& fold) : graph_(graph), clips_(clips), fold_(fold) {}

  bool start(ValueId value, const ChannelMap& map, const std::vector<NodeId>& readers) {
    return into(value, map, [&](const Use& use) {
      return use.slot == 0 && std::find(readers.begin(), readers.end(), use.node) != readers.end();
    });
  }

 private:
  // Reader `node` sees `value` at `slot` divided according to the map.
  bool through(NodeId node, int slot, const ChannelMap& map) {
    if (map.untouched()) return true;
    const ValueId value = input(graph_.node(node), static_cast<std::size_t>(slot));
    if (value == ValueId::kNone) return false;
    if (graph_.is_constant(value)) return divide(node, slot, map);
    return into(value, map, [&](const Use& use) { return use.node == node && use.slot == slot; });
  }

  template <class Expected>
  bool into(ValueId value, const ChannelMap& map, const Expected& expected) {
    const NodeId producer = graph_.producer(value);
    if (producer == NodeId::kNone || graph_.is_output(value) || graph_.value(value).dtype != DType::kF32 ||
        graph_.value(value).kind != ValueKind::kTensor || ++steps_ > kMostSteps)
      return false;
    for (const Use& use : graph_.users(value))
      if (!expected(use) && !sees_nothing(graph_, use, map)) return false;
    fold_.changed.push_back(value);
    return back(producer, graph_.value(value).producer_slot, map);
  }

  bool back(NodeId id, int out, const ChannelMap& map) {
    const Node& node = graph_.node(id);
    if (!node.domain.empty()) return false;
    if (node.is("Conv") || node.is("ConvTranspose")) return conv(id, map);
    if (node.is("Gemm") || node.is("MatMul")) return product(id, map);
    if (node.is("LayerNormalization") || node.is("RMSNormalization") || node.is("BatchNormalization"))
      return normalization(id, map);
    if (node.is("Relu") || node.is("LeakyRelu") || node.is("PRelu") || node.is("Identity"))
      return through(id, 0, map);
    if (node.is("MaxPool") || node.is("AveragePool") || node.is("GlobalAveragePool") ||
        node.is("GlobalMaxPool"))
      return node.out.size() == 1 && alike_behind(map, 2) && through(id, 0, map);
    if (node.is("Clip")) {
      if (!clips_ || !is_float_constant(graph_, input(node, 1)) || !is_float_constant(graph_, input(node, 2)))
        return false;
      // Reached twice (by two outputs of a Split): its limits would become rows twice.
      if (std::any_of(fold_.edits.begin(), fold_.edits.end(),
                      [&](const FoldEdit& edit) { return edit.node == id; }))
        return false;
      FoldEdit edit{id, 1, map, true, false};
      fold_.edits.push_back(std::move(edit));
      return through(id, 0, map);
    }
    ChannelMap inner;
    if (node.is("Add") || node.is("Sub")) {
      for (const int slot : {0, 1})
        if (!unbroadcast(graph_, node.in[static_cast<std::size_t>(slot)], map, inner) ||
            !through(id, slot, inner))
          return false;
      return true;
    }
    if (node.is("Mul")) return gate(id, map);
    if (node.is("Div")) return side(id, 0, map);
    if (node.is("Concat")) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < node.in.size(); ++i) {
        if (!back_through_concat(graph_, node, i, at, map, inner)) return false;
        if (!through(id, static_cast<int>(i), inner)) return false;
      }
      return true;
    }
    const bool lone = graph_.users(node.in[0]).size() == 1;
    return back_through_movement(graph_, node, out, lone, map, inner) && through(id, 0, inner);
  }

  bool conv(NodeId id, const ChannelMap& map) {
    const Node& node = graph_.node(id);
    if (!only_axis(map, 1) || !is_float_constant(graph_, input(node, 1))) return false;
    const bool transposed = node.is("ConvTranspose");
    if (transposed && node.attr("group", std::int64_t{1}) != 1) return false;
    const std::size_t rank = graph_.value(node.in[1]).constant.dims().size();
    ChannelMap weight = map, bias = map;
    weight.dims.assign(rank, 1);
    weight.dims[transposed ? 1 : 0] = static_cast<std::int64_t>(map.channel.size());
    bias.dims = {static_cast<std::int64_t>(map.channel.size())};
    return divide(id, 1, weight, true) && (input(node, 2) == ValueId::kNone || divide(id, 2, bias));
  }

  bool product(NodeId id, const ChannelMap& map) {
    const Node& node = graph_.node(id);
    const int last = static_cast<int>(map.dims.size()) - 1;
    if (is_float_constant(graph_, input(node, 1))) {
      if (!only_axis(map, last) || graph_.value(node.in[1]).constant.dims().size() != 2) return false;
      const auto n = static_cast<std::int64_t>(map.channel.size());
      ChannelMap weight = map, bias = map;
      weight.dims = node.attr("transB", std::int64_t{0}) != 0 ? Dims{n, 1} : Dims{1, n};
      bias.dims = {n};
      return divide(id, 1, weight, true) && (input(node, 2) == ValueId::kNone || divide(id, 2, bias));
    }
    // Two activations: the channels of the last axis are those of the right side, unless rows have them too.
    if (!node.is("MatMul") || last < 1 || map.dims[static_cast<std::size_t>(last) - 1] != 1) return false;
    // A right side that repeats along a batch axis (heads that share their values) has no factor of its own.
    ChannelMap inner;
    return graph_.value(node.in[1]).shape.rank() == last + 1 && unbroadcast(graph_, node.in[1], map, inner) &&
           through(id, 1, inner);
  }

  bool normalization(NodeId id, const ChannelMap& map) {
    const Node& node = graph_.node(id);
    if (node.out.size() != 1 || !is_float_constant(graph_, input(node, 1))) return false;
    const int rank = graph_.value(node.out[0]).shape.rank();
    int axis = 1;
    if (!node.is("BatchNormalization")) {
      axis = rank - 1;
      const std::int64_t normalized = node.attr("axis", std::int64_t{-1});
      if (normalized != -1 && normalized != axis) return false;
    }
    if (!only_axis(map, axis) || graph_.value(node.in[1]).constant.dims().size() != 1) return false;
    ChannelMap row = map;
    row.dims = {static_cast<std::int64_t>(map.channel.size())};
    return divide(id, 1, row) && (input(node, 2) == ValueId::kNone || divide(id, 2, row));
  }

  bool gate(NodeId id, const ChannelMap& map) {
    const Node& node = graph_.node(id);
    if (node.in[0] == node.in[1]) return false;
    for (const int slot : {1, 0})
      if (graph_.is_constant(node.in[static_cast<std::size_t>(slot)])) {
        // A row takes the factor itself; a number lets it pass, so that no Mul grows.
        const bool row = graph_.value(node.in[static_cast<std::size_t>(slot)]).constant.size() > 1;
        return (!row && side(id, 1 - slot, map)) || divide(id, slot, map);
      }
    return side(id, 0, map) || side(id, 1, map);
  }

  // Into one side of a product, if that side has the shape of the result along the channels. What a way that
  // ended nowhere has noted is forgotten.
  bool side(NodeId id, int slot, const ChannelMap& map) {
    const ValueId value = graph_.node(id).in[static_cast<std::size_t>(slot)];
    ChannelMap inner;
    if (!unbroadcast(graph_, value, map, inner)) return false;
    const ChannelFold before = fold_;
    if (through(id, slot, inner)) return true;
    fold_ = before;
    return false;
  }

  bool divide(NodeId id, int slot, const ChannelMap& map, bool weight = false) {
    const ValueId value = input(graph_.node(id), static_cast<std::size_t>(slot));
    if (map.untouched()) return true;
    if (!is_float_constant(graph_, value)) return false;
    if (!broadcasts(graph_.value(value).constant.dims(), map.dims)) return false;
    FoldEdit edit{id, slot, map, false, weight};
    fold_.edits.push_back(std::move(edit));
    return true;
  }

  static constexpr int kMostSteps = 200;
  const Graph& graph_;
  bool clips_;
  ChannelFold& fold_;
  int steps_ = 0;
};

// What divides each element: 1 / s of its channel, or 1.
std::vector<float> divisors(const ChannelMap& map, const std::vector<float>& s) {
  std::vector<float> list;
  list.reserve(map.channel.size());
  for (const std::int32_t c : map.channel) list.push_back(c < 0 ? 1.0f : s[static_cast<std::size_t>(c)]);
  return list;
}

// A constant over divisors of dims `map`, broadcast against each other.
Tensor divided(const Tensor& constant, const Dims& map, const std::vector<float>& by) {
  const Dims& own = constant.dims();
  std::size_t rank = map.size();  // without leading ones that the constant does not have
  while (rank > own.size() && map[map.size() - rank] == 1) --rank;
  rank = std::max(rank, own.size());
  Dims dims(rank, 1);
  const auto size = [rank](const Dims& d, std::size_t i) {
    return i + d.size() < rank ? std::int64_t{1} : d[i + d.size() - rank];
  };
  for (std::size_t i = 0; i < rank; ++i) dims[i] = std::max(size(own, i), size(map, i));
  Tensor result = Tensor::allocate(DType::kF32, dims);
  std::vector<std::int64_t> index(rank, 0);
  for (std::int64_t k = 0; k < result.size(); ++k) {
    std::int64_t from = 0, factor = 0;
    for (std::size_t i = 0; i < rank; ++i) {
      from = from * size(own, i) + (size(own, i) == 1 ? 0 : index[i]);
      factor = factor * size(map, i) + (size(map, i) == 1 ? 0 : index[i]);
    }
    result.mut<float>()[k] = constant.as<float>()[from] / by[static_cast<std::size_t>(factor)];
    for (std::size_t i = rank; i-- > 0;) {
      if (++index[i] < dims[i]) break;
      index[i] = 0;
    }
  }
  return result;
}

// Clip(x, low, high) as Min(Max(x, low / s), high / s), Relu where low is 0.
void clip_by_channel(Graph& graph, const FoldEdit& edit, const std::vector<float>& s) {
  const Node clip = graph.node(edit.node);
  const float low = *graph.value(clip.in[1]).constant.as<float>();
  const float high = *graph.value(clip.in[2]).constant.as<float>();
  const std::vector<float> by = divisors(edit.map, s);
  const std::string base = graph.value(clip.out[0]).name;
  const auto row = [&](float limit, const char* what) {
    Tensor tensor = Tensor::allocate(DType::kF32, edit.map.dims);
    for (std::size_t i = 0; i < by.size(); ++i) tensor.mut<float>()[i] = limit / by[i];
    return graph.add_constant(base + what, std::move(tensor));
  };
  Value middle;
  middle.name = base + "_above";
  middle.dtype = DType::kF32;
  middle.shape = graph.value(clip.out[0]).shape;
  Node lower, upper;
  lower.name = clip.name.empty() ? "" : clip.name + "_low";
  lower.op = low == 0.0f ? "Relu" : "Max";
  lower.in = {clip.in[0]};
  if (low != 0.0f) lower.in.push_back(row(low, "_low"));
  lower.out = {graph.add_value(std::move(middle))};
  upper.name = clip.name;
  upper.op = "Min";
  upper.in = {lower.out[0], row(high, "_high")};
  graph.insert_before(edit.node, std::move(lower));
  const NodeId min = graph.insert_before(edit.node, std::move(upper));
  graph.remove_node(edit.node);
  graph.set_output(min, 0, clip.out[0]);
}

}  // namespace

bool find_channel_fold(const Graph& graph, ValueId value, int axis, std::int64_t channels,
                       const std::vector<NodeId>& readers, bool clips, ChannelFold& fold) {
  const int rank = graph.value(value).shape.rank();
  if (rank < 1 || axis < 0 || axis >= rank) return false;
  ChannelFold found;
  Walk walk(graph, clips, found);
  if (!walk.start(value, ChannelMap::along(rank, axis, channels), readers)) return false;
  fold = std::move(found);
  return true;
}

void apply_channel_fold(Graph& graph, const ChannelFold& fold, const std::vector<float>& s) {
  for (const FoldEdit& edit : fold.edits) {
    if (edit.limits) {
      clip_by_channel(graph, edit, s);
      continue;
    }
    const ValueId old = graph.node(edit.node).in[static_cast<std::size_t>(edit.slot)];
    Tensor changed = divided(graph.value(old).constant, edit.map.dims, divisors(edit.map, s));
    const bool same_shape = changed.dims() == graph.value(old).constant.dims();
    if (same_shape && graph.users(old).size() == 1 && !graph.is_output(old)) {
      graph.value(old).constant = std::move(changed);
    } else {
      graph.set_input(edit.node, edit.slot,
                      graph.add_constant(graph.value(old).name + "_scaled", std::move(changed)));
    }
  }
}

}  // namespace pare::quant
