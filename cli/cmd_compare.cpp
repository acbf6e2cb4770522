#include "cli/commands.h"
#include "cli/engine_report.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/build/engine_file.h"
#include "graphsurgeon/load.h"
#include "recipes/report_files.h"
#include "recipes/study/compare_runs.h"

namespace pare {
namespace {

Json value_json(const std::optional<double>& value) { return value ? json_number(*value) : Json(nullptr); }

std::string text(const std::optional<double>& value) { return value ? fmt::format("{:.6g}", *value) : "-"; }

Json rows_json(const std::vector<ChangedValue>& rows) {
  Json list = Json::array();
  for (const ChangedValue& row : rows)
    list.push_back({{"name", row.name}, {"a", value_json(row.a)}, {"b", value_json(row.b)}});
  return list;
}

template <typename Row>
Json texts_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back({{"name", row.name}, {"a", row.a}, {"b", row.b}});
  return list;
}

class Compare final : public Command {
 public:
  const char* name() const override { return "compare"; }
  const char* what() const override { return "what changed between two runs, or two engines layer by layer"; }

  void declare(Args& args) override {
    args.positional("RUN_A", a_, "run folder, or a report.json; or an engine")
        .positional("RUN_B", b_, "another")
        .example("pare compare runs/before runs/after")
        .example("pare compare fp32.engine int8.engine");
  }

  int run(Context& context) override {
    const bool engine = is_engine(a_), other = is_engine(b_);
    if (engine != other)
      throw make_error(ErrorCode::kUsage, "'{}' is an engine, and '{}' is none", engine ? a_ : b_,
                       engine ? b_ : a_)
          .hint("two engines of `pare build`, or two runs");
    if (engine) return compare_engines(context);
    const RunComparison c = compare_runs(read_report(a_), read_report(b_));
    for (const ChangedValue& row : c.metrics)
      context.print(fmt::format("{:<28} {:>12} {:>12}", row.name, text(row.a), text(row.b)));
    for (const ChangedValue& row : c.sizes)
      context.print(fmt::format("{:<28} {:>12} {:>12}", row.name, text(row.a), text(row.b)));
    for (const ChangedText& row : c.gates)
      context.print(fmt::format("gate {}: {} | {}", row.name, row.a, row.b));
    for (const ChangedText& row : c.provenance)
      context.print(fmt::format("{}: {} | {}", row.name, row.a, row.b));
    print_some(context, c);
    if (c.same_result()) context.print("the same decisions, model and data");
    Json layers = Json::array();
    for (const ChangedDrift& row : c.layers)
      layers.push_back({{"name", row.name},
                        {"op", row.op},
                        {"sqnr_db_a", json_number(row.sqnr_db_a)},
                        {"sqnr_db_b", json_number(row.sqnr_db_b)}});
    Json& json = context.document();
    json["a"] = a_;
    json["b"] = b_;
    json["same_result"] = c.same_result();
    json["metrics"] = rows_json(c.metrics);
    json["sizes"] = rows_json(c.sizes);
    json["stages"] = rows_json(c.seconds);
    json["gates"] = texts_json(c.gates);
    json["provenance"] = texts_json(c.provenance);
    json["quantized"] = texts_json(c.quantized);
    json["layers"] = std::move(layers);
    return 0;
  }

 private:
  static bool is_engine(const std::string& path) {
    return is_regular_file(path) && file_extension(path) != ".json" && model_kind(path) == ModelKind::kEngine;
  }

  // Precision and time of each layer in both engines; layers go by their names, those of one alone stand
  // behind.
  int compare_engines(Context& context) const {
    const Json first = engine_layers(read_engine(a_)), second = engine_layers(read_engine(b_));
    const auto find = [](const Json& layers, const std::string& name) {
      for (const Json& layer : layers)
        if (layer["name"] == name) return layer;
      return Json();
    };
    Json rows = Json::array();
    double total_a = 0, total_b = 0;
    const auto add = [&](const std::string& name, const Json& a, const Json& b) {
      const auto value = [](const Json& layer, const char* key) {
        return layer.is_null() ? Json() : layer[key];
      };
      rows.push_back({{"name", name},
                      {"realized_a", value(a, "realized")},
                      {"realized_b", value(b, "realized")},
                      {"median_us_a", value(a, "median_us")},
                      {"median_us_b", value(b, "median_us")}});
    };
    for (const Json& layer : first) add(layer["name"], layer, find(second, layer["name"]));
    for (const Json& layer : second)
      if (find(first, layer["name"]).is_null()) add(layer["name"], Json(), layer);
    context.print(
        fmt::format("  {:<40} {:<20} {:>10} {:<20} {:>10} {:>7}", "layer", "a", "us", "b", "us", "a / b"));
    for (const Json& row : rows) {
      const auto word = [&](const char* key) {
        return row[key].is_string() ? row[key].get<std::string>() : "-";
      };
      const auto number = [&](const char* key) { return row[key].is_number() ? row[key].get<double>() : 0; };
      const double a = number("median_us_a"), b = number("median_us_b");
      total_a += a, total_b += b;
      context.print(fmt::format("  {:<40} {:<20} {:>10.2f} {:<20} {:>10.2f} {:>7}",
                                row["name"].get<std::string>(), word("realized_a"), a, word("realized_b"), b,
                                a > 0 && b > 0 ? fmt::format("{:.2f}", a / b) : ""));
    }
    context.print(fmt::format("  {:<40} {:<20} {:>10.2f} {:<20} {:>10.2f} {:>7}",
                              "all layers, each timed alone", "", total_a, "", total_b,
                              total_a > 0 && total_b > 0 ? fmt::format("{:.2f}", total_a / total_b) : ""));
    Json& json = context.document();
    json["a"] = a_;
    json["b"] = b_;
    json["engine_layers"] = std::move(rows);
    return 0;
  }

  // The document has all rows; people get the first ones.
  static void print_some(Context& context, const RunComparison& c) {
    constexpr std::size_t kShown = 20;
    for (std::size_t i = 0; i < std::min(kShown, c.quantized.size()); ++i)
      context.print(fmt::format("{}: {} | {}", c.quantized[i].name,
                                c.quantized[i].a.empty() ? "-" : c.quantized[i].a,
                                c.quantized[i].b.empty() ? "-" : c.quantized[i].b));
    if (c.quantized.size() > kShown)
      context.print(fmt::format("... and {} more decisions that differ", c.quantized.size() - kShown));
    for (std::size_t i = 0; i < std::min<std::size_t>(5, c.layers.size()); ++i)
      if (c.layers[i].sqnr_db_a - c.layers[i].sqnr_db_b > 0.1)
        context.print(fmt::format("layer {} ({}): {:.1f} dB | {:.1f} dB", c.layers[i].name, c.layers[i].op,
                                  c.layers[i].sqnr_db_a, c.layers[i].sqnr_db_b));
  }

  std::string a_, b_;
};

}  // namespace

std::unique_ptr<Command> make_compare() { return std::make_unique<Compare>(); }

}  // namespace pare
