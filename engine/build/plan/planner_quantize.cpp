// Quantizers that move into the layer in front of them, through movement and constant factors.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/build/plan/planner.h"
#include "engine/build/plan/program.h"
#include "engine/numeric/convert.h"

namespace pare::planning {
namespace {

constexpr int kMostNodes = 64;

bool one_number(const Graph& graph, ValueId id, double& out) {
  if (!graph.is_constant(id) || graph.value(id).constant.size() != 1) return false;
  const Tensor& t = graph.value(id).constant;
  Tensor f = Tensor::allocate(DType::kF32, {1});
  convert(t.reshaped({1}).view(), f.view());
  out = static_cast<double>(*f.as<float>());
  return true;
}

// The columns of a [rows, columns] matrix that a view walks; false when it has no fixed columns.
bool columns_of(const PlanView& view, std::int64_t columns, std::vector<std::int64_t>& out) {
  out = {view.offset % columns};
  for (std::size_t i = 0; i < view.dims.size(); ++i) {
    const std::int64_t count = view.dims[i], stride = view.strides[i];
    if (count == 1 || stride % columns == 0) continue;
    if (stride < 0 || out.back() + (count - 1) * stride >= columns ||
        static_cast<std::int64_t>(out.size()) * count > columns)
      return false;
    std::vector<std::int64_t> wider;
    for (std::int64_t k = 0; k < count; ++k)
      for (const std::int64_t c : out) wider.push_back(c + k * stride);
    std::sort(wider.begin(), wider.end());
    if (wider.back() >= columns) return false;
    out = std::move(wider);
  }
  return true;
}

}  // namespace

bool Planner::is_attention_operand(ValueId value) const {
  const NodeId user = graph_.only_user(value);
  if (user == NodeId::kNone) return false;
  for (const auto& entry : attention_) {
    const AttentionMatch& m = entry.second;
    if ((m.q == value || m.k == value || m.v == value) && (user == m.scores_node || user == m.values_node))
      return true;
  }
  return false;
}

bool Planner::absorb_quantizers(ValueId value, const PlanView& view, std::int64_t columns, Codes& codes,
                                bool mixed) {
  struct State {
    ValueId value;
    PlanView view;
    double factor;
  };
  std::vector<State> open = {{value, view, 1}};
  std::vector<double> scales;
  std::vector<std::vector<std::int64_t>> covers, raw;
  int seen = 0;
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    if (graph_.is_output(state.value)) return false;
    const std::vector<Use> users(graph_.users(state.value).begin(), graph_.users(state.value).end());
    if (users.empty()) return false;
    for (const Use& use : users) {
      if (++seen > kMostNodes) return false;
      const Node& node = graph_.node(use.node);
      const bool taken = class_of(use.node) == NodeClass::kTaken;
      double number = 0;
      if (use.slot == 0 && class_of(use.node) == NodeClass::kView && node.out.size() == 1 &&
          !node.is("Expand")) {
        State next = state;
        next.value = node.out[0];
        if (view_node(node, next.view)) {
          open.push_back(std::move(next));
          continue;
        }
        if (!mixed) return false;
        raw.emplace_back();
        if (!columns_of(state.view, columns, raw.back())) return false;
      } else if (!taken && use.slot == 0 && (node.is("Mul") || node.is("Div")) &&
                 one_number(graph_, node.in[1], number) && number > 0 && std::isfinite(number)) {
        open.push_back(
            {node.out[0], state.view, node.is("Mul") ? state.factor * number : state.factor / number});
      } else if (use.slot == 0 && (node.is("QuantizeLinear") ||
                                   (node.is("pare", "FakeQuant") && is_attention_operand(node.out[0])))) {
        ProgramStep step;
        std::string why;
        if (!step_of_node(graph_, node, step, why)) return false;
        const auto type = static_cast<DType>(static_cast<int>(step.z));
        const bool fake = !node.is("QuantizeLinear");
        if (codes.type != DType::kUndefined && (codes.type != type || codes.zero != step.y)) return false;
        if (fake && (step.y != 0 || type == DType::kU8)) return false;
        if (mixed && (!fake || type != DType::kI8)) return false;
        codes.type = type;
        codes.zero = step.y;
        scales.push_back(step.x / state.factor);
        covers.emplace_back();
        if (columns > 0 && !columns_of(state.view, columns, covers.back())) return false;
        codes.placed.emplace_back(node.out[0], state.view);
        if (fake) codes.fake.emplace_back(node.out[0], step.x);
      } else {
        if (!mixed) return false;
        raw.emplace_back();
        if (!columns_of(state.view, columns, raw.back())) return false;
      }
    }
  }
  if (scales.empty()) return false;
  if (mixed) {
    codes.inverse.assign(static_cast<std::size_t>(columns), 0);
    for (std::size_t i = 0; i < scales.size(); ++i)
      for (const std::int64_t c : covers[i]) {
        if (codes.inverse[static_cast<std::size_t>(c)] != 0) return false;
        codes.inverse[static_cast<std::size_t>(c)] = static_cast<float>(1 / scales[i]);
      }
    for (const auto& list : raw)
      for (const std::int64_t c : list)
        if (codes.inverse[static_cast<std::size_t>(c)] != 0) return false;
    return true;
  }
  codes.scale = scales[0];
  if (std::all_of(scales.begin(), scales.end(), [&](double s) { return s == scales[0]; })) return true;
  if (columns <= 0) return false;
  codes.inverse.assign(static_cast<std::size_t>(columns), 0);
  for (std::size_t i = 0; i < scales.size(); ++i)
    for (const std::int64_t c : covers[i]) {
      const auto inverse = static_cast<float>(1 / scales[i]);
      float& at = codes.inverse[static_cast<std::size_t>(c)];
      if (at != 0 && at != inverse) return false;
      at = inverse;
    }
  return std::all_of(codes.inverse.begin(), codes.inverse.end(), [](float f) { return f != 0; });
}

bool Planner::copied_quantizers(ValueId value, const PlanView& view, Codes& codes) {
  std::vector<std::pair<ValueId, PlanView>> open = {{value, view}};
  int seen = 0;
  while (!open.empty()) {
    const auto state = open.back();
    open.pop_back();
    const std::vector<Use> users(graph_.users(state.first).begin(), graph_.users(state.first).end());
    for (const Use& use : users) {
      if (++seen > kMostNodes) return false;
      const Node& node = graph_.node(use.node);
      if (use.slot != 0) continue;
      if (class_of(use.node) == NodeClass::kView && node.out.size() == 1 && !node.is("Expand")) {
        PlanView next = state.second;
        if (view_node(node, next)) open.emplace_back(node.out[0], std::move(next));
        continue;
      }
      ProgramStep step;
      std::string why;
      if (class_of(use.node) != NodeClass::kPointwise || !node.is("QuantizeLinear") ||
          post_[static_cast<std::size_t>(use.node)] ||
          region_[static_cast<std::size_t>(use.node)] != use.node || !step_of_node(graph_, node, step, why))
        continue;
      const auto type = static_cast<DType>(static_cast<int>(step.z));
      if (codes.type == DType::kUndefined) {
        codes.type = type;
        codes.scale = step.x;
        codes.zero = step.y;
      }
      if (codes.type == type && codes.scale == step.x && codes.zero == step.y)
        codes.placed.emplace_back(node.out[0], state.second);
    }
  }
  return !codes.placed.empty();
}

void Planner::place_codes(const Codes& codes, int tensor_id) {
  for (const auto& entry : codes.placed) {
    const ValueId value = entry.first;
    PlanView view = entry.second;
    view.tensor = tensor_id;
    const auto fake =
        std::find_if(codes.fake.begin(), codes.fake.end(), [&](const auto& f) { return f.first == value; });
    if (fake == codes.fake.end())
      placed_[value] = view;
    else
      fake_codes_[value] = {view, fake->second};
  }
}

}  // namespace pare::planning
