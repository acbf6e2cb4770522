#include "calib/ranges.h"
#include "calib/statistics.h"
#include "calib/trt_cache.h"
#include "cli/commands.h"
#include "cli/output.h"
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
        .option("--format", "FORMAT", format_, "number format of the ranges")
        .one_of({"int8", "uint8", "int16", "uint16", "int4", "uint4", "fp8", "fp8_e5m2", "fp4", "nvfp4"})
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
    // Unsigned integers with a zero point, which is what they are for.
    static const std::vector<std::pair<const char*, RangeTarget>> kTargets = {
        {"int8", {DType::kI8, true, false, false}},    {"uint8", {DType::kU8, false, false, false}},
        {"int16", {DType::kI16, true, false, false}},  {"uint16", {DType::kU16, false, false, false}},
        {"int4", {DType::kI4, true, false, false}},    {"uint4", {DType::kU4, false, false, false}},
        {"fp8", {DType::kE4M3FN, true, false, false}}, {"fp8_e5m2", {DType::kE5M2, true, false, false}},
        {"fp4", {DType::kE2M1, true, false, false}},   {"nvfp4", {DType::kE2M1, true, false, true}}};
    for (const auto& [text, known] : kTargets)
      if (format_ == text) return known;
    throw make_error(ErrorCode::kUsage, "there are no ranges for '{}'", format_)
        .at("--format")
        .hint("int8, uint8, int16, uint16, int4, uint4, fp8, fp8_e5m2, fp4 or nvfp4");
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
    context.print(fmt::format("\n{:<22} {:>12} {:>12} {:>12} {:>10} {:>6}",
                              t.name.size() > 22 ? "method" : t.name, "low", "high", "mse", "clipped",
                              "tried"));
    for (const RangeChoice& c : choices) {
      context.print(fmt::format("{:<22} {:>12.5g} {:>12.5g} {:>12.4g} {:>8.3f} % {:>6}{}", c.method, c.low,
                                c.high, c.mse, 100 * c.clipped, c.candidates,
                                &c == &best ? "  least error" : ""));
      list.push_back({{"method", c.method},
                      {"low", json_number(c.low)},
                      {"high", json_number(c.high)},
                      {"mse", json_number(c.mse)},
                      {"clipped", json_number(c.clipped)},
                      {"candidates", c.candidates}});
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

class StatsExportTrtCache final : public Command {
 public:
  const char* name() const override { return "stats export-trt-cache"; }
  const char* what() const override { return "write INT8 scales as a TensorRT calibration cache"; }

  void declare(Args& args) override {
    args.positional("STATS.h5", path_, "from `pare calibrate` or a run folder")
        .option("-o,--output", "OUT", output_, "where to write the cache")
        .required()
        .option("--calibrator", "CALIBRATOR", method_, "how ranges are chosen",
                "quantize.activations.calibrator")
        .one_of({"minmax", "entropy", "mse", "percentile(...)"})
        .option("--header", "TEXT", header_, "first line")
        .example("pare stats export-trt-cache stats.h5 --calibrator entropy -o resnet.cache");
  }

  int run(Context& context) override {
    check_output(output_, {path_});
    std::vector<std::string> left_out;
    TrtCache cache = trt_cache_from(load_statistics(path_), method_, &left_out);
    cache.header = header_;
    save_trt_cache(cache, output_);
    if (!left_out.empty())
      context.warn(fmt::format("{} tensors had no finite value and are not in the cache, the first is '{}'",
                               left_out.size(), left_out.front()));
    Json& json = context.document();
    json["cache"] = output_;
    json["tensors"] = cache.entries.size();
    json["left_out"] = left_out;
    context.print(fmt::format("wrote {}: {} scales by {}", output_, cache.entries.size(), method_));
    return 0;
  }

 private:
  std::string path_, output_, method_ = "mse", header_ = kTrtCacheHeader;
};

}  // namespace

std::unique_ptr<Command> make_stats_show() { return std::make_unique<StatsShow>(); }
std::unique_ptr<Command> make_stats_merge() { return std::make_unique<StatsMerge>(); }
std::unique_ptr<Command> make_stats_export_trt_cache() { return std::make_unique<StatsExportTrtCache>(); }

}  // namespace pare
