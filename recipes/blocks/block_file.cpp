// save_block and load_block of block_outcome.h.
#include <algorithm>

#include "calib/statistics.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "quant/audit.h"
#include "recipes/blocks/block_outcome.h"
#include "recipes/quantize/graph_record.h"

namespace pare {
namespace {

constexpr std::int64_t kWorthIt = 1 << 12;  // bytes of a constant that is a reference rather than a copy

// Does every reader of the float weight read its codes in the quantized graph? Captures are inputs too.
bool only_codes_are_read(const Graph& graph, const quant::WeightSite& site) {
  std::size_t readers = 0;
  for (const NodeId id : graph.nodes())
    for (const ValueId in : graph.node(id).in) readers += in == site.value ? 1 : 0;
  return readers == site.uses.size() &&
         std::find(graph.outputs.begin(), graph.outputs.end(), site.value) == graph.outputs.end();
}

// What is not written is lost when a run is resumed: who adds a member to one of these adds it below.
static_assert(sizeof(quant::WeightPlan) == 4 * sizeof(Tensor) + 2 * sizeof(double) +
                                               2 * sizeof(std::int64_t) + sizeof(quant::LayerRecord),
              "WeightPlan has members that block files do not know");

double number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  return text == "inf" ? HUGE_VAL : text == "-inf" ? -HUGE_VAL : std::nan("");
}

Json path_record(const SubgraphPath& path) {
  Json steps = Json::array();
  for (const SubgraphStep& step : path)
    steps.push_back(Json::array({static_cast<std::int64_t>(step.node), step.attribute}));
  return steps;
}
SubgraphPath path_from(const Json& record) {
  SubgraphPath path;
  for (const Json& step : record)
    path.push_back({static_cast<NodeId>(step.at(0).get<std::int64_t>()), step.at(1).get<std::string>()});
  return path;
}

Json uses_record(const std::vector<Use>& uses) {
  Json list = Json::array();
  for (const Use& use : uses) list.push_back(Json::array({static_cast<std::int64_t>(use.node), use.slot}));
  return list;
}
std::vector<Use> uses_from(const Json& record) {
  std::vector<Use> uses;
  for (const Json& use : record)
    uses.push_back({static_cast<NodeId>(use.at(0).get<std::int64_t>()), use.at(1).get<int>()});
  return uses;
}

Json format_record(const quant::Format& f) {
  return Json::array({static_cast<int>(f.dtype), static_cast<int>(f.granularity), f.block, f.symmetric,
                      static_cast<int>(f.scales), f.bits, f.positive, f.dynamic, f.asked, f.rows});
}
quant::Format format_from(const Json& r) {
  quant::Format f;
  f.dtype = static_cast<DType>(r.at(0).get<int>());
  f.granularity = static_cast<quant::Granularity>(r.at(1).get<int>());
  f.block = r.at(2).get<int>();
  f.symmetric = r.at(3).get<bool>();
  f.scales = static_cast<DType>(r.at(4).get<int>());
  f.bits = r.at(5).get<int>();
  f.positive = r.at(6).get<bool>();
  f.dynamic = r.at(7).get<bool>();
  f.asked = r.at(8).get<bool>();
  f.rows = r.at(9).get<int>();
  return f;
}

Json placement_record(const quant::Placement& p) {
  Json activations = Json::array(), weights = Json::array(), biases = Json::array(), fused = Json::array(),
       skipped = Json::array();
  for (const quant::ActivationSite& site : p.activations)
    activations.push_back({{"value", static_cast<std::int64_t>(site.value)},
                           {"uses", uses_record(site.uses)},
                           {"graph_output", site.graph_output},
                           {"format", format_record(site.format)},
                           {"rule", site.rule},
                           {"unit_range", site.unit_range},
                           {"path", path_record(site.path)},
                           {"group", site.group}});
  for (const quant::WeightSite& site : p.weights)
    weights.push_back({{"value", static_cast<std::int64_t>(site.value)},
                       {"uses", uses_record(site.uses)},
                       {"axis", site.axis},
                       {"format", format_record(site.format)},
                       {"path", path_record(site.path)},
                       {"method", site.method},
                       {"reduce_axis", site.reduce_axis},
                       {"fused", site.fused}});
  for (const quant::BiasSite& site : p.biases)
    biases.push_back({{"node", static_cast<std::int64_t>(site.node)},
                      {"slot", site.slot},
                      {"path", path_record(site.path)}});
  for (const quant::FusedLayers& group : p.fused)
    fused.push_back({{"kind", group.kind}, {"weights", group.weights}});
  for (const quant::Skipped& one : p.skipped) skipped.push_back({{"tensor", one.tensor}, {"why", one.why}});
  return {{"activations", activations}, {"weights", weights},       {"biases", biases}, {"fused", fused},
          {"skipped", skipped},         {"unmatched", p.unmatched}, {"notes", p.notes}};
}

quant::Placement placement_from(const Json& r) {
  quant::Placement p;
  for (const Json& one : r.at("activations")) {
    quant::ActivationSite site;
    site.value = static_cast<ValueId>(one.at("value").get<std::int64_t>());
    site.uses = uses_from(one.at("uses"));
    site.graph_output = one.at("graph_output").get<bool>();
    site.format = format_from(one.at("format"));
    site.rule = one.at("rule").get<std::string>();
    site.unit_range = one.at("unit_range").get<bool>();
    site.path = path_from(one.at("path"));
    site.group = one.at("group").get<int>();
    p.activations.push_back(std::move(site));
  }
  for (const Json& one : r.at("weights")) {
    quant::WeightSite site;
    site.value = static_cast<ValueId>(one.at("value").get<std::int64_t>());
    site.uses = uses_from(one.at("uses"));
    site.axis = one.at("axis").get<int>();
    site.format = format_from(one.at("format"));
    site.path = path_from(one.at("path"));
    site.method = one.at("method").get<std::string>();
    site.reduce_axis = one.at("reduce_axis").get<int>();
    site.fused = one.at("fused").get<int>();
    p.weights.push_back(std::move(site));
  }
  for (const Json& one : r.at("biases"))
    p.biases.push_back({static_cast<NodeId>(one.at("node").get<std::int64_t>()), one.at("slot").get<int>(),
                        path_from(one.at("path"))});
  for (const Json& one : r.at("fused"))
    p.fused.push_back({one.at("kind").get<std::string>(), one.at("weights").get<std::vector<std::size_t>>()});
  for (const Json& one : r.at("skipped"))
    p.skipped.push_back({one.at("tensor").get<std::string>(), one.at("why").get<std::string>()});
  p.unmatched = r.at("unmatched").get<std::vector<std::string>>();
  p.notes = r.at("notes").get<std::vector<std::string>>();
  return p;
}

Json weight_record(const quant::WeightPlan& plan, TensorList& tensors) {
  Json tried = Json::array();
  for (const auto& [method, loss] : plan.record.tried)
    tried.push_back(Json::array({method, json_number(loss)}));
  return {{"codes", tensors.add(plan.codes)},
          {"scales", tensors.add(plan.scales)},
          {"global", tensors.add(plan.global)},
          {"zero_points", tensors.add(plan.zero_points)},
          {"nearest", plan.nearest},
          {"mse", json_number(plan.mse)},
          {"sqnr_db", json_number(plan.sqnr_db)},
          {"clipped", plan.clipped},
          {"method", plan.record.method},
          {"fallback", plan.record.fallback},
          {"loss", json_number(plan.record.loss)},
          {"held_out_loss", json_number(plan.record.held_out_loss)},
          {"tried", tried}};
}

quant::WeightPlan weight_from(const Json& r, const TensorList& tensors) {
  const auto tensor = [&](const char* key) { return tensors.at(r.at(key).get<std::int64_t>()); };
  quant::WeightPlan plan;
  plan.codes = tensor("codes");
  plan.scales = tensor("scales");
  plan.global = tensor("global");
  plan.zero_points = tensor("zero_points");
  plan.nearest = r.at("nearest").get<bool>();
  plan.mse = number(r.at("mse"));
  plan.sqnr_db = number(r.at("sqnr_db"));
  plan.clipped = r.at("clipped").get<std::int64_t>();
  plan.record.method = r.at("method").get<std::string>();
  plan.record.fallback = r.at("fallback").get<std::string>();
  plan.record.loss = number(r.at("loss"));
  plan.record.held_out_loss = number(r.at("held_out_loss"));
  for (const Json& one : r.at("tried"))
    plan.record.tried.emplace_back(one.at(0).get<std::string>(), number(one.at(1)));
  return plan;
}

Tensor floats_tensor(const std::vector<float>& values) {
  return Tensor::from(DType::kF32, {static_cast<std::int64_t>(values.size())}, values);
}
std::vector<float> floats_from(const Tensor& tensor) {
  const auto* x = tensor.as<float>();
  return {x, x + tensor.size()};
}

Json activation_record(const quant::ActivationPlan& plan, TensorList& tensors) {
  std::vector<std::int64_t> zeros(plan.channel_zero_points.begin(), plan.channel_zero_points.end());
  return {{"scale", tensors.add(Tensor::scalar(plan.scale))},
          {"zero_point", plan.zero_point},
          {"low", json_number(plan.range.low)},
          {"high", json_number(plan.range.high)},
          {"method", plan.range.method},
          {"scales", tensors.add(floats_tensor(plan.channel_scales))},
          {"zero_points", zeros}};
}

quant::ActivationPlan activation_from(const Json& r, const TensorList& tensors) {
  quant::ActivationPlan plan;
  plan.scale = *tensors.at(r.at("scale").get<std::int64_t>()).as<float>();
  plan.zero_point = r.at("zero_point").get<std::int32_t>();
  plan.range = {number(r.at("low")), number(r.at("high")), r.at("method").get<std::string>()};
  plan.channel_scales = floats_from(tensors.at(r.at("scales").get<std::int64_t>()));
  plan.channel_zero_points = r.at("zero_points").get<std::vector<std::int32_t>>();
  return plan;
}

Json lists_record(const QuantizeOutcome& o) {
  Json ranges = Json::array(), scaled = Json::array(), low_rank = Json::array(), reached = Json::array();
  for (const RangeChoice& range : o.ranges)
    ranges.push_back(Json::array({range.method, json_number(static_cast<double>(range.low)),
                                  json_number(static_cast<double>(range.high)), json_number(range.mse),
                                  json_number(range.clipped), range.candidates}));
  for (const ScaledValue& value : o.scaled)
    scaled.push_back(Json::array({value.tensor, value.family, json_number(value.strength),
                                  json_number(value.predicted_gain_db), value.folded}));
  for (const LowRankLayer& layer : o.low_rank)
    low_rank.push_back(
        Json::array({layer.tensor, layer.rank, json_number(layer.plain_loss), json_number(layer.loss)}));
  for (const ReachedLayer& layer : o.reached)
    reached.push_back(Json::array({layer.tensor, layer.tokens, layer.of, layer.inputs}));
  return {{"ranges", ranges},     {"scaled", scaled}, {"reached", reached},
          {"low_rank", low_rank}, {"notes", o.notes}, {"biases_corrected", o.biases_corrected}};
}

void lists_from(const Json& r, QuantizeOutcome& o) {
  for (const Json& one : r.at("ranges")) {
    RangeChoice range;
    range.method = one.at(0).get<std::string>();
    range.low = static_cast<float>(number(one.at(1)));
    range.high = static_cast<float>(number(one.at(2)));
    range.mse = number(one.at(3));
    range.clipped = number(one.at(4));
    range.candidates = one.at(5).get<std::int64_t>();
    o.ranges.push_back(std::move(range));
  }
  for (const Json& one : r.at("scaled")) {
    ScaledValue value;
    value.tensor = one.at(0).get<std::string>();
    value.family = one.at(1).get<std::string>();
    value.strength = number(one.at(2));
    value.predicted_gain_db = number(one.at(3));
    value.folded = one.at(4).get<bool>();
    o.scaled.push_back(std::move(value));
  }
  for (const Json& one : r.at("low_rank")) {
    LowRankLayer layer;
    layer.tensor = one.at(0).get<std::string>();
    layer.rank = one.at(1).get<std::int64_t>();
    layer.plain_loss = number(one.at(2));
    layer.loss = number(one.at(3));
    o.low_rank.push_back(std::move(layer));
  }
  for (const Json& one : r.at("reached"))
    o.reached.push_back({one.at(0).get<std::string>(), one.at(1).get<std::uint64_t>(),
                         one.at(2).get<std::uint64_t>(), one.at(3).get<std::uint64_t>()});
  o.notes = r.at("notes").get<std::vector<std::string>>();
  o.biases_corrected = r.at("biases_corrected").get<int>();
}

// Histograms go through the statistics file, which checks them; names there are sorted and unique, those of a
// plan neither.
std::string stats_path(const std::string& path) { return path + ".h5"; }

void save_stats(const std::string& path, const std::vector<TensorStats>& stats) {
  Statistics all;
  all.graph_hash = hex(sha256("block"));  // of no graph that anyone compares with
  for (std::size_t i = 0; i < stats.size(); ++i) {
    all.tensors.push_back(stats[i]);
    all.tensors.back().name = fmt::format("{:08d} {}", i, stats[i].name);
  }
  save_statistics(all, stats_path(path));
}

std::vector<TensorStats> load_stats(const std::string& path) {
  std::vector<TensorStats> stats = load_statistics(stats_path(path)).tensors;
  for (TensorStats& one : stats) one.name = one.name.substr(9);
  return stats;
}

// Of the constants of the block's main graph, those that need not be written.
void leave_out(const QuantizeOutcome& o, const Graph& model, TensorList& tensors) {
  for (std::size_t i = 0; i < o.plan.weights.size(); ++i) {
    const quant::WeightSite& site = o.plan.placement.weights[i];
    if (!site.path.empty() || !only_codes_are_read(o.source, site)) continue;
    const Value& value = o.source.value(site.value);
    const std::string wrong = quant::not_nearest(value.constant, site, o.plan.weights[i]);
    if (!wrong.empty()) fail(ErrorCode::kInternal, "the codes of '{}': {}", value.name, wrong);
    tensors.leave_out(value.constant);
  }
  for (std::size_t i = 0; i < o.source.value_count(); ++i) {
    const Value& value = o.source.value(static_cast<ValueId>(i));
    if (value.constant.empty() || value.constant.bytes() < kWorthIt) continue;
    const ValueId id = model.find_value(value.name);
    if (id == ValueId::kNone) continue;
    const Tensor& there = model.value(id).constant;
    if (there.data() == value.constant.data() && there.dtype() == value.constant.dtype() &&
        there.dims() == value.constant.dims())
      tensors.leave_out(value.constant, value.name);
  }
}

TensorList::Elsewhere constants_of(const Graph& model) {
  return [&model](const std::string& name) {
    const ValueId id = model.find_value(name);
    return id == ValueId::kNone ? Tensor{} : model.value(id).constant;
  };
}

}  // namespace

void save_block(const std::string& path, const std::string& key, const BlockOutcome& block,
                const Graph& model) {
  const QuantizeOutcome& o = block.outcome;
  TensorList tensors;
  leave_out(o, model, tensors);
  Json weights = Json::array(), activations = Json::array();
  for (const quant::WeightPlan& plan : o.plan.weights) weights.push_back(weight_record(plan, tensors));
  for (const quant::ActivationPlan& plan : o.plan.activations)
    activations.push_back(activation_record(plan, tensors));
  const Json head = {{"block", 2},
                     {"key", key},
                     {"name", block.record.name},
                     {"layers", block.record.layers},
                     {"seconds", json_number(block.record.seconds)},
                     {"output_sqnr_db", json_number(block.record.output_sqnr_db)},
                     {"candidate", block.record.candidate},
                     {"graph", graph_record(o.source, tensors)},
                     {"placement", placement_record(o.plan.placement)},
                     {"weights", weights},
                     {"activations", activations},
                     {"stats", !o.stats.empty()},
                     {"lists", lists_record(o)}};
  if (!o.stats.empty()) save_stats(path, o.stats);
  tensors.write(path, head);
}

std::optional<BlockOutcome> load_block(const std::string& path, const std::string& key, const Graph& model,
                                       std::string* why) {
  if (!path_exists(path)) return std::nullopt;
  try {
    Json head;
    const TensorList tensors = TensorList::read(path, head, constants_of(model));
    if (json_string(head, "key", path) != key) return std::nullopt;
    BlockOutcome block;
    block.record.name = json_string(head, "name", path);
    block.record.layers = json_int(head, "layers", path);
    block.record.seconds = json_double(head, "seconds", path);
    block.record.output_sqnr_db = json_double(head, "output_sqnr_db", path);
    block.record.candidate = json_string(head, "candidate", path);
    QuantizeOutcome& o = block.outcome;
    o.source = graph_from_record(json_object(head, "graph", path), tensors, path);
    o.plan.placement = placement_from(head.at("placement"));
    for (const Json& one : head.at("weights")) o.plan.weights.push_back(weight_from(one, tensors));
    for (const Json& one : head.at("activations"))
      o.plan.activations.push_back(activation_from(one, tensors));
    if (head.at("stats").get<bool>()) o.stats = load_stats(path);
    lists_from(head.at("lists"), o);
    o.quantized = quant::apply(o.source, o.plan);
    return block;
  } catch (const std::exception& error) {
    if (why != nullptr) *why = error.what();
    return std::nullopt;  // not sound: the block is quantized again
  }
}

}  // namespace pare
