#include "recipes/quantize/held_out.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr std::int64_t kCheckedSamples = 16, kCheckedTexts = 4;
constexpr double kUnchangedDb = 60;

}  // namespace

bool HeldOut::has_samples() const {
  return in_.held_out != nullptr && in_.held_out_range.end > in_.held_out_range.begin;
}

SampleRange HeldOut::checked_range() const {
  // Windows of text hold hundreds of outputs each, thousands of logits wide.
  const bool text = in_.graph->metadata.count("pare.family") != 0;
  if (!has_samples())
    return {0, std::min(in_.calibration->sample_count(), text ? kCheckedTexts : kCheckedSamples)};
  const SampleRange all = in_.held_out_range;
  return text ? SampleRange{all.begin, std::min(all.end, all.begin + kCheckedTexts)} : all;
}

BatchOutputs HeldOut::outputs_of(const Graph& graph, const SampleRange& range) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  EvaluateOptions options;
  options.pool = in_.pool;
  options.progress = in_.progress;
  Dataset& data = has_samples() ? *in_.held_out : *in_.calibration;
  BatchOutputs outputs = collect_outputs(graph, data, range, options);
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return outputs;
}

const BatchOutputs& HeldOut::reference() {
  if (!reference_) reference_ = outputs_of(*in_.graph, in_.held_out_range);
  return *reference_;
}

double HeldOut::score(const Graph& candidate) {
  PARE_ASSERT(has_samples());
  const BatchOutputs& wanted = reference();
  return output_sqnr_db(wanted, outputs_of(candidate, in_.held_out_range));
}

double HeldOut::likeness(const Graph& graph) {
  if (!has_samples() && in_.calibration == nullptr) return std::numeric_limits<double>::infinity();
  if (!checked_) checked_ = outputs_of(*in_.graph, checked_range());
  return output_sqnr_db(*checked_, outputs_of(graph, checked_range()));
}

bool HeldOut::unchanged(const Graph& graph) { return likeness(graph) >= kUnchangedDb; }

void HeldOut::check_unchanged(const Graph& graph, const std::string& what) {
  const double sqnr = likeness(graph);
  if (!(sqnr >= kUnchangedDb))
    fail(ErrorCode::kInternal, "{} changed the float outputs (SQNR {:.1f} dB, {:.0f} wanted)", what, sqnr,
         kUnchangedDb);
}

}  // namespace pare
