#include "recipes/quantize/solve_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "quant/grid/clip_search.h"
#include "quant/grid/grid_search.h"

namespace pare {
namespace {

// Codes without feedback.
bool is_nearest(const std::string& method) {
  return method == "rtn" || method == "search" || method == "local_hessian";
}

std::vector<std::vector<float>> dense(const Gram& gram) {
  std::vector<std::vector<float>> all;
  for (std::int64_t g = 0; g < gram.groups; ++g) all.push_back(gram.dense(g));
  return all;
}

// AWQ's last step: per row the better of three grids, by the layer's loss.
SolvedRows awq_rows(const quant::LayerProblem& problem, const SolveOptions& options, ThreadPool& pool) {
  SolvedRows best;
  double least = 0;
  quant::LayerPower power;
  for (const char* way : {"search", "clip", "rtn"}) {
    quant::LayerProblem one = problem;
    one.held_out = nullptr;  // chooses nothing: measured for the best alone
    one.power = &power;
    quant::LayerOptions layer = options.layer;
    layer.method = std::string(way) == "clip" ? "rtn" : way;
    quant::Grid clipped;
    if (std::string(way) == "clip") {
      if (problem.gram == nullptr || problem.global != 0 || problem.format.rows > 1) continue;
      clipped = quant::clip_grid(problem.format, problem.weight->shape, problem.weight->values.data(),
                                 dense(*problem.gram), pool);
      one.grid = &clipped;
    }
    quant::LayerSolution solution = quant::solve_layer(one, layer, pool);
    if (layer.advance) layer.advance(1.0 / 3);
    best.record.tried.emplace_back(way, solution.relative_loss);
    if (!best.codes.empty() && !(solution.loss < least)) continue;
    least = solution.loss;
    best.grid = std::move(solution.grid);
    best.codes = std::move(solution.codes);
    best.record.method = std::string("awq, ") + way;
    best.record.loss = solution.relative_loss;
  }
  best.record.held_out_loss = std::numeric_limits<double>::quiet_NaN();
  if (problem.held_out != nullptr) {
    const quant::WeightRows& weight = *problem.weight;
    std::vector<float> image(weight.values.size());
    quant::decode(problem.format, weight.shape, best.grid, best.codes.data(), image.data(), pool);
    best.record.held_out_loss = quant::held_out_loss(weight, image.data(), *problem.held_out, pool);
  }
  return best;
}

// How the codes were found, and with which losses.
void say_how(const quant::LayerSolution& solution, SolvedRows& solved) {
  solved.nearest = is_nearest(solution.method);
  solved.record.method = solution.method;
  solved.record.fallback = solution.fallback;
  solved.record.loss = solution.relative_loss;
  solved.record.held_out_loss = solution.held_out_loss;
  for (const quant::LayerCandidate& one : solution.candidates)
    solved.record.tried.emplace_back(one.method, one.loss);
}

// Codes of a weight with one scale for the whole tensor: the scale stays, codes are solved row by row.
SolvedRows solve_on_scale(const std::string& name, const quant::WeightSite& site, const Tensor& weight,
                          const GramPair& grams, float scale, const std::string& method,
                          const SolveOptions& options, ThreadPool& pool) {
  const quant::WeightSite by_row = row_site(site);
  const quant::WeightRows rows = quant::site_rows(weight, by_row);
  quant::Grid grid;
  grid.scales.assign(static_cast<std::size_t>(rows.shape.rows), scale);
  quant::LayerProblem problem;
  problem.name = name;
  problem.weight = &rows;
  problem.gram = &grams.fit;
  if (!grams.held_out.empty()) problem.held_out = &grams.held_out;
  if (!grams.outputs.empty()) problem.outputs = &grams.outputs;
  problem.format = quant::grid_format(by_row.format);
  problem.grid = &grid;
  quant::LayerOptions layer = options.layer;
  layer.method = method;
  quant::LayerSolution solution = quant::solve_layer(problem, layer, pool);
  SolvedRows solved;
  solved.grid.scales = {scale};
  // A tensor's one row is its memory.
  const quant::WeightView view = quant::site_view(by_row, weight.dims());
  solved.codes.resize(solution.codes.size());
  std::size_t at = 0;
  for (std::int64_t row = 0; row < rows.shape.rows; ++row)
    for (std::int64_t tap = 0; tap < view.taps; ++tap)
      for (std::int64_t in = 0; in < view.ins; ++in)
        solved.codes[static_cast<std::size_t>(view.at(row, in, tap))] = solution.codes[at++];
  say_how(solution, solved);
  return solved;
}

std::string layer_method(const std::string& method, bool searched, bool has_moments) {
  if (method == "auto") return searched || !has_moments ? "search" : "auto";
  if (method == "smoothquant" || method == "equalize" || method == "low_rank") return "search";
  return method;
}

// One scale for the tensor has one row that holds it all, which no moments fit.
bool is_whole(const quant::WeightSite& site) {
  return site.format.granularity == quant::Granularity::kTensor;
}

// One matrix of moments whose columns are those of the rows, in their order.
bool fits_rows(const GramPair* pair, const Tensor& weight) {
  return pair != nullptr && !pair->fit.empty() && pair->fit.groups == 1 && weight.size() % pair->fit.n == 0;
}

// The global scale that fused layers share, by site; only two-level formats have one.
std::map<std::size_t, float> shared_globals(const Graph& graph, const quant::Placement& placement,
                                            ThreadPool& pool) {
  std::map<std::size_t, float> globals;
  for (const quant::FusedLayers& fused : placement.fused) {
    const quant::WeightSite& first = placement.weights[fused.weights.front()];
    const quant::GridFormat format = quant::grid_format(first.format);
    if (format.scales != DType::kE4M3FN) continue;
    std::vector<quant::WeightRows> rows;
    for (const std::size_t i : fused.weights) {
      const quant::WeightSite& site = placement.weights[i];
      rows.push_back(quant::site_rows(subgraph_at(graph, site.path).value(site.value).constant, site));
    }
    std::vector<quant::GridSource> sources;
    for (const quant::WeightRows& one : rows) {
      quant::GridSource source;
      source.shape = one.shape;
      source.weight = one.values.data();
      source.options.search = first.method != "rtn";
      sources.push_back(source);
    }
    const float global = quant::choose_global(format, sources, pool);
    for (const std::size_t i : fused.weights) globals[i] = global;
  }
  return globals;
}

// One layer, or those that share a scale.
std::vector<quant::WeightPlan> solve_unit(const Graph& graph, const quant::Placement& unit,
                                          const LayerGrams& grams, const SolveOptions& options,
                                          ThreadPool& pool) {
  const quant::WeightSite& first = unit.weights.front();
  const std::string method = layer_method(first.method, options.searched, grams.find(first) != nullptr);
  const bool simple = method == "rtn" || method == "search";
  if ((simple && grams.find(first) == nullptr) || is_whole(first)) {
    std::vector<quant::WeightPlan> plans =
        quant::plan_weights(graph, unit, method == "rtn" ? "rtn" : "search", pool);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      quant::WeightPlan& plan = plans[i];
      const quant::WeightSite& site = unit.weights[i];
      const std::shared_ptr<const GramPair> pair = grams.find(site);
      if (const Tensor& weight = subgraph_at(graph, site.path).value(site.value).constant;
          !simple && method != "awq" && fits_rows(pair.get(), weight)) {
        SolvedRows one = solve_on_scale(value_label(graph, site.path, site.value), site, weight, *pair,
                                        *plan.scales.as<float>(), method, options, pool);
        plan = quant::weight_plan(site, weight.dims(), quant::site_rows(weight, site), one.grid, one.codes,
                                  pool);
        plan.nearest = one.nearest;
        plan.record = std::move(one.record);
        continue;
      }
      plan.record.method = simple ? method : "search";
      plan.record.held_out_loss = std::numeric_limits<double>::quiet_NaN();
      if (!simple) plan.record.fallback = "one scale for the tensor, and no second moments of one matrix";
    }
    return plans;
  }
  const std::map<std::size_t, float> shared = shared_globals(graph, unit, pool);
  SolveOptions one_of_all = options;
  if (options.layer.advance)
    one_of_all.layer.advance = [&options, layers = static_cast<double>(unit.weights.size())](double share) {
      options.layer.advance(share / layers);
    };
  std::vector<quant::WeightPlan> plans;
  for (std::size_t i = 0; i < unit.weights.size(); ++i) {
    const quant::WeightSite& site = unit.weights[i];
    const std::string name = value_label(graph, site.path, site.value);
    try {
      const Tensor& weight = subgraph_at(graph, site.path).value(site.value).constant;
      const quant::WeightRows rows = quant::site_rows(weight, site);
      const auto global = shared.find(i);
      SolvedRows one = solve_rows(name, site, rows, grams.find(site).get(),
                                  global == shared.end() ? 0.0f : global->second, one_of_all, pool);
      quant::WeightPlan plan = quant::weight_plan(site, weight.dims(), rows, one.grid, one.codes, pool);
      plan.nearest = one.nearest;
      plan.record = std::move(one.record);
      plans.push_back(std::move(plan));
    } catch (Error& error) {
      error.at(fmt::format("weight '{}'", name));
      throw;
    }
  }
  return plans;
}

// What a unit's codes depend on beside weights and formats.
std::string describe(const quant::Placement& unit, const LayerGrams& grams, const SolveOptions& options) {
  Sha256 hash;
  bool any = false;
  for (const quant::WeightSite& site : unit.weights)
    if (const auto pair = grams.find(site); pair != nullptr)
      for (const Gram* gram : {&pair->fit, &pair->held_out, &pair->outputs}) {
        any = true;
        hash.update_number(gram->count);
        hash.update(std::as_bytes(std::span<const double>(gram->sums)));
      }
  return fmt::format("{} {} {} {} {}", options.searched, options.layer.damp, options.layer.output_damp,
                     static_cast<int>(options.layer.order), any ? hex(hash.finish()) : std::string());
}

}  // namespace

quant::WeightSite row_site(quant::WeightSite site) {
  if (site.format.granularity == quant::Granularity::kTensor)
    site.format.granularity = quant::Granularity::kChannel;
  return site;
}

bool wants_grams(const std::string& method) {
  return method == "local_hessian" || method == "gptq" || method == "learned" || method == "awq" ||
         method == "low_rank";
}

SolvedRows solve_rows(const std::string& name, const quant::WeightSite& site, const quant::WeightRows& rows,
                      const GramPair* grams, float global, const SolveOptions& options, ThreadPool& pool) {
  quant::LayerProblem problem;
  problem.name = name;
  problem.weight = &rows;
  if (grams != nullptr && !is_whole(site)) {
    problem.gram = &grams->fit;
    if (!grams->held_out.empty()) problem.held_out = &grams->held_out;
    if (!grams->outputs.empty()) problem.outputs = &grams->outputs;
  }
  problem.format = quant::grid_format(site.format);
  problem.global = global;
  SolvedRows solved;
  if (site.method == "awq") {
    solved = awq_rows(problem, options, pool);
  } else {
    quant::LayerOptions layer = options.layer;
    layer.method = layer_method(site.method, options.searched, problem.gram != nullptr);
    quant::LayerSolution solution = quant::solve_layer(problem, layer, pool);
    solved.grid = std::move(solution.grid);
    solved.codes = std::move(solution.codes);
    say_how(solution, solved);
  }
  return solved;
}

std::vector<quant::WeightPlan> solve_weights(const Graph& graph, const quant::Placement& placement,
                                             const LayerGrams& grams, const SolveOptions& options,
                                             LayerJournal* journal, Progress& progress, ThreadPool& pool) {
  // Layers of method auto are gone through twice, for two candidates.
  const bool automatic = std::any_of(placement.weights.begin(), placement.weights.end(),
                                     [](const quant::WeightSite& site) { return site.method == "auto"; });
  const char* what = !automatic ? "weights" : options.searched ? "weights, searched" : "weights, by outputs";
  return plan_layers(
      graph, placement, [&](const quant::Placement& unit) { return describe(unit, grams, options); }, journal,
      progress,
      [&](const quant::Placement& unit, const Advance& advance) {
        SolveOptions told = options;
        told.layer.advance = advance;
        return solve_unit(graph, unit, grams, told, pool);
      },
      what);
}

quant::Placement part_of(const quant::Placement& placement, const std::vector<std::size_t>& weights) {
  quant::Placement part;
  std::map<int, int> groups;  // fused group of the whole -> of the part
  for (const std::size_t i : weights) {
    quant::WeightSite site = placement.weights[i];
    if (site.fused >= 0) {
      const auto [group, fresh] = groups.emplace(site.fused, static_cast<int>(part.fused.size()));
      if (fresh) part.fused.push_back({placement.fused[static_cast<std::size_t>(site.fused)].kind, {}});
      site.fused = group->second;
      part.fused[static_cast<std::size_t>(site.fused)].weights.push_back(part.weights.size());
    }
    part.weights.push_back(std::move(site));
  }
  return part;
}

std::vector<std::vector<std::size_t>> gram_parts(const Graph& graph, const quant::Placement& placement,
                                                 const Dataset& data) {
  std::vector<std::vector<std::size_t>> parts;
  std::int64_t bytes = 0;
  std::set<int> fused_done;
  for (std::size_t i = 0; i < placement.weights.size(); ++i) {
    const int fused = placement.weights[i].fused;
    if (fused >= 0 && !fused_done.insert(fused).second) continue;
    const std::vector<std::size_t> unit =
        fused < 0 ? std::vector<std::size_t>{i} : placement.fused[static_cast<std::size_t>(fused)].weights;
    const std::int64_t more = LayerGrams::forecast(graph, part_of(placement, unit), data).most;
    if (parts.empty() || bytes + more > kGramPartBytes) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().insert(parts.back().end(), unit.begin(), unit.end());
    bytes += more;
  }
  return parts;
}

std::vector<quant::WeightPlan> solve_weights_in_parts(const Graph& graph, const quant::Placement& placement,
                                                      Dataset& data, const SolveOptions& options,
                                                      LayerJournal* journal, Progress& progress,
                                                      ThreadPool& pool) {
  std::vector<quant::WeightPlan> plans(placement.weights.size());
  for (const std::vector<std::size_t>& weights : gram_parts(graph, placement, data)) {
    const quant::Placement part = part_of(placement, weights);
    const LayerGrams grams = LayerGrams::collect(graph, part, data, pool, &progress);
    std::vector<quant::WeightPlan> made = solve_weights(graph, part, grams, options, journal, progress, pool);
    for (std::size_t k = 0; k < weights.size(); ++k) plans[weights[k]] = std::move(made[k]);
  }
  return plans;
}

double solve_bytes(const Graph& graph, const quant::Placement& placement) {
  double most = 0;
  for (const GramLayer& layer : gram_layers(graph, placement)) {
    const auto n = static_cast<double>(layer.geometry.n()), rows = static_cast<double>(layer.rows);
    // E[x x^T] in float32, GPTQ's factor, the descent's copy and factor, the loss's own; where channel
    // factors changed them, both matrices again. The rows, levels, their image and its error, codes twice.
    most = std::max(most, n * n * (5 * 4 + 8) + rows * n * (4 * 4 + 2));
  }
  return most;
}

}  // namespace pare
