#include "calib/ranges.h"
#include "calib/statistics.h"
#include "cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"

namespace pare {
namespace {

Json totals(const Statistics& s) {
  return {{"samples", s.samples},           {"tensors", s.tensors.size()}, {"graph_hash", s.graph_hash},
          {"data_hash", s.data_hash.hex()}, {"nan", s.nan_count()},        {"inf", s.inf_count()}};
}

class StatsShow final : public Command {
 public:
  const char* name() const override { return "stats show"; }
  const char* what() const override {
    return "what a statistics file holds, and the ranges that methods choose";
  }

  void declare(Args& args) override {
    args.positional("STATS.h5", path_, "from `pare calibrate` or a run folder")
        .option("--tensor", "NAME", tensor_, "every method's range for this tensor")
        .option("--format", "F", format_, "int8, uint8 or fp8 (default int8)", "quantize.activations.format")
        .example("pare stats show runs/fashion-resnet-int8/statistics.h5");
  }

  int run(Context& context) override {
    const Statistics s = load_statistics(path_);
    RangeTarget target = range_target();
    Json& json = context.document();
    json = totals(s);
    context.print(fmt::format("{}: {} samples, {} tensors, {} NaN, {} infinite", path_, s.samples,
                              s.tensors.size(), s.nan_count(), s.inf_count()));
    context.print(fmt::format("graph {}\ndata  {}", s.graph_hash, s.data_hash.hex()));
    if (tensor_.empty())
      table(context, s);
    else
      methods(context, s.at(tensor_), target);
    return 0;
  }

 private:
  RangeTarget range_target() const {
    RangeTarget target;
    if (format_ == "uint8") {
      target.format = DType::kU8;
      target.symmetric = false;
    } else if (format_ == "fp8") {
      target.format = DType::kE4M3FN;
    } else if (format_ != "int8") {
      throw make_error(ErrorCode::kUsage, "'{}' is none of int8, uint8, fp8", format_).at("--format");
    }
    return target;
  }

  static void table(Context& context, const Statistics& s) {
    Json list = Json::array();
    context.print(fmt::format("{:>12} {:>12} {:>14} {:>7} {:>5} {:>5}  {}", "min", "max", "values", "zeros",
                              "NaN", "inf", "tensor"));
    for (const TensorStats& t : s.tensors) {
      const std::uint64_t inf = t.positive_inf + t.negative_inf;
      const double zeros =
          t.total == 0 ? 0 : 100.0 * static_cast<double>(t.zeros) / static_cast<double>(t.total);
      context.print(fmt::format("{:>12.5g} {:>12.5g} {:>14} {:>5.1f} % {:>5} {:>5}  {}", t.min, t.max,
                                t.total, zeros, t.nan, inf, t.name));
      list.push_back({{"name", t.name},
                      {"min", json_number(t.min)},
                      {"max", json_number(t.max)},
                      {"values", t.total},
                      {"zeros", t.zeros},
                      {"nan", t.nan},
                      {"inf", inf}});
    }
    context.document()["list"] = std::move(list);
  }

  static void methods(Context& context, const TensorStats& t, const RangeTarget& target) {
    Json list = Json::array();
    const std::vector<RangeChoice> choices = all_methods(t, target);
    const RangeChoice& best = least_mse(choices);
    context.print(fmt::format("\n{:<22} {:>12} {:>12} {:>12} {:>10}", t.name.size() > 22 ? "method" : t.name,
                              "low", "high", "mse", "clipped"));
    for (const RangeChoice& c : choices) {
      context.print(fmt::format("{:<22} {:>12.5g} {:>12.5g} {:>12.4g} {:>8.3f} %{}", c.method, c.low, c.high,
                                c.mse, 100 * c.clipped, &c == &best ? "  least error" : ""));
      list.push_back({{"method", c.method},
                      {"low", json_number(c.low)},
                      {"high", json_number(c.high)},
                      {"mse", json_number(c.mse)},
                      {"clipped", json_number(c.clipped)}});
    }
    context.document()["ranges"] = std::move(list);
  }

  std::string path_, tensor_, format_ = "int8";
};

class StatsMerge final : public Command {
 public:
  const char* name() const override { return "stats merge"; }
  const char* what() const override { return "add up statistics of parts of the data, exactly"; }

  void declare(Args& args) override {
    args.positionals("STATS.h5", paths_, "files of one model, each over other samples")
        .option("-o,--output", "OUT.h5", output_, "where to write the sum")
        .required()
        .example("pare stats merge part1.h5 part2.h5 -o all.h5");
  }

  int run(Context& context) override {
    Statistics sum = load_statistics(paths_.front());
    for (std::size_t i = 1; i < paths_.size(); ++i)
      sum = with_context(fmt::format("merging '{}'", paths_[i]),
                         [&] { return merge(sum, load_statistics(paths_[i])); });
    save_statistics(sum, output_);
    context.document() = totals(sum);
    context.document()["stats"] = output_;
    context.print(fmt::format("wrote {}: {} samples, {} tensors", output_, sum.samples, sum.tensors.size()));
    return 0;
  }

 private:
  std::vector<std::string> paths_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> make_stats_show() { return std::make_unique<StatsShow>(); }
std::unique_ptr<Command> make_stats_merge() { return std::make_unique<StatsMerge>(); }

}  // namespace pare
