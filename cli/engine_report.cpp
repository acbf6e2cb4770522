#include "cli/engine_report.h"

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"

namespace pare {
namespace {

std::string size_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

int kernels_of(const EngineFile& engine) {
  return engine.is_cpu() ? static_cast<int>(engine.rows.size()) : count_kernels(engine.plan);
}

}  // namespace

Json engine_layers(const EngineFile& engine) {
  Json list = Json::array();
  for (const PlanLayer& l : engine.plan.layers)
    list.push_back({{"name", l.name},
                    {"kind", name(l.kind)},
                    {"nodes", l.nodes.size()},
                    {"requested", l.requested},
                    {"realized", l.realized},
                    {"kernel", l.tactic},
                    {"why", l.why},
                    {"median_us", json_number(l.microseconds)}});
  for (const EngineRow& r : engine.rows)
    list.push_back({{"name", r.name},
                    {"kind", r.op},
                    {"nodes", 1},
                    {"requested", r.requested},
                    {"realized", r.realized},
                    {"kernel", r.kernel},
                    {"why", r.why},
                    {"median_us", json_number(r.microseconds)}});
  return list;
}

double layers_microseconds(const EngineFile& engine) {
  double total = 0;
  for (const PlanLayer& layer : engine.plan.layers) total += layer.microseconds;
  for (const EngineRow& row : engine.rows) total += row.microseconds;
  return total;
}

void print_layers(Context& context, const EngineFile& engine) {
  const double total = layers_microseconds(engine);
  const auto line = [&](double us, const std::string& kind, const std::string& realized,
                        const std::string& kernel, const std::string& label) {
    context.print(fmt::format("{:8.2f} us {:5.1f} %  {:<9} {:<14} {:<34} {}", us,
                              total > 0 ? 100 * us / total : 0, kind, realized, kernel, label));
  };
  for (const PlanLayer& layer : engine.plan.layers)
    line(layer.microseconds, name(layer.kind), layer.realized, layer.tactic,
         layer.name + (layer.nodes.size() > 1 ? fmt::format(" (+{})", layer.nodes.size() - 1) : ""));
  for (const EngineRow& row : engine.rows) line(row.microseconds, row.op, row.realized, row.kernel, row.name);
}

void report_memory(Context& context, const PlannedMemory& m, std::int64_t measured) {
  context.document()["memory"] = {{"weights", m.weights},       {"activations", m.activations},
                                  {"workspace", m.workspace},   {"io", m.io},
                                  {"predicted_peak", m.peak()}, {"measured_peak", nullptr}};
  std::string line = fmt::format(
      "memory: weights {}, activations {}, workspace {}, inputs and outputs {}, predicted peak {}",
      size_text(m.weights), size_text(m.activations), size_text(m.workspace), size_text(m.io),
      size_text(m.peak()));
  if (measured >= 0) {
    context.document()["memory"]["measured_peak"] = measured;
    line += fmt::format(", measured {}", size_text(measured));
  }
  context.print(line);
}

void report_precision(Context& context, const EngineFile& engine) {
  Json& json = context.document();
  json["kernels"] = kernels_of(engine);
  json["layers"] = engine_layers(engine);
  json["realized"] = Json::array();
  int differ = 0;
  for (const Realized& row : engine.plan.realized) {
    json["realized"].push_back(
        {{"node", row.node}, {"requested", row.requested}, {"realized", row.realized}, {"why", row.why}});
    if (row.why.empty()) continue;
    ++differ;
    context.warn(fmt::format("{} was asked for {} and runs in {}: {}", row.node, row.requested, row.realized,
                             row.why));
  }
  context.print(fmt::format(
      "{} kernels{}", kernels_of(engine),
      engine.plan.realized.empty()
          ? std::string()
          : fmt::format("; {} layers with Q/DQ, {} not as requested", engine.plan.realized.size(), differ)));
}

}  // namespace pare
