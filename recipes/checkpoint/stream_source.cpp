#include "recipes/checkpoint/stream_source.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/checkpoint/finite.h"
#include "quant/grid/ct_arithmetic.h"
#include "quant/grid/stored_rows.h"
#include "recipes/checkpoint/quantized_layers.h"

namespace pare {
namespace {

constexpr float kNvfp4Largest = 6 * 448;

struct Planned {
  LinearModule module;
  quant::Format weights;
  bool search = true;
  int fused = -1;  // weights with one global scale
};

// [outs, ins] in float32.
std::vector<float> rows_of(const Checkpoint& checkpoint, const LinearModule& module, ThreadPool& pool) {
  const Tensor stored = checkpoint.weights->get(module.weight);
  const std::int64_t rows = stored.dims()[0], cols = stored.dims()[1];
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  const auto* bytes = stored.as<std::byte>();
  const std::int64_t element = bits(stored.dtype()) / 8;
  pool.parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    decode(stored.dtype(), bytes + begin * cols * element, values.data() + begin * cols,
           (end - begin) * cols);
  });
  if (!module.in_first) return values;
  std::vector<float> turned(values.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      turned[static_cast<std::size_t>(c * rows + r)] = values[static_cast<std::size_t>(r * cols + c)];
  return turned;
}

quant::CtFormat parity_format(const CodeFormat& w, const std::string& module) {
  if (w.codes == DType::kE2M1) return w.two_levels() ? quant::CtFormat::kNvfp4 : quant::CtFormat::kMxfp4;
  if (w.scales == DType::kBF16 && w.row_group == 1) {
    if (w.codes == DType::kE4M3FN && w.group == 0) return quant::CtFormat::kFp8;
    if (is_integer(w.codes) && w.bits == 4)
      return w.symmetric ? quant::CtFormat::kInt4 : quant::CtFormat::kInt4Zeros;
  }
  throw make_error(ErrorCode::kUnsupported, "there is no parity with compressed-tensors for {}", to_string(w))
      .at(fmt::format("layer '{}'", module))
      .hint("W4A16, W4A16_ASYM, FP8_DYNAMIC, NVFP4A16 and MXFP4A16 of bfloat16 models have it");
}

class StreamSource final : public QuantizedSource {
 public:
  StreamSource(const Checkpoint& checkpoint, const quant::Spec& asked, const StreamOptions& options,
               std::vector<LeftFloat>* left)
      : checkpoint_(checkpoint), options_(options) {
    PARE_ASSERT(options.pool != nullptr);
    if (!can_stream(asked))
      throw make_error(ErrorCode::kUsage, "this needs calibration data, and none is looked at here")
          .hint("give --data, or method rtn or search with activations at run time");
    const quant::Spec spec = fit_to_dialect(options.dialect, float_type_of(checkpoint), asked);
    PlannedLayers all = planned_layers(checkpoint, spec, options.quantize_head);
    for (const LeftFloat& one : all.left) model_.ignored.push_back(one.module);
    std::map<std::string, int> fused;  // by input
    std::set<std::string> coded;
    for (const PlannedLayer& one : all.layers) {
      const LinearModule& module = one.module;
      Planned planned{module, one.weights, one.method != "rtn", -1};
      LinearFormat layer = linear_format(module, one.weights, one.inputs);
      if (layer.weights.two_levels() && !spec.share.empty())
        planned.fused = fused.insert({module.input, static_cast<int>(fused.size())}).first->second;
      if (options.parity) parity_format(layer.weights, module.module);
      if (module.tied)
        model_.untied = true;
      else
        coded.insert(module.weight);
      model_.layers.push_back(layer);
      planned_.push_back(std::move(planned));
    }
    globals_.assign(fused.size(), 0.0f);
    for (const WeightStore::Entry& entry : checkpoint.weights->entries()) {
      if (coded.count(entry.name) != 0 || (model_.untied && entry.name == "lm_head.weight")) continue;
      DType type = DType::kF32;  // GGUF's blocks come out so
      dtype_from_name(entry.type, type);
      model_.floats.push_back({entry.name, type, entry.dims});
      if (all.graph.find_value(entry.name) != ValueId::kNone)
        refuse_nonfinite(entry.name, checkpoint.weights->get(entry.name), checkpoint.path);
    }
    model_.folder = checkpoint.path;
    if (left != nullptr) *left = std::move(all.left);
  }

  const QuantizedModel& model() const override { return model_; }

  Tensor float_tensor(const std::string& name) const override { return checkpoint_.weights->get(name); }

  QuantizedLinear layer(std::size_t index) const override {
    const Planned& planned = planned_.at(index);
    QuantizedLinear layer;
    static_cast<LinearFormat&>(layer) = model_.layers[index];
    try {
      if (options_.parity)
        as_peer(rows_of(checkpoint_, planned.module, *options_.pool), layer);
      else
        by_stored(planned, layer);
    } catch (Error& error) {
      if (error.code() == ErrorCode::kBadFile) refuse_damaged(planned);
      error.at(fmt::format("weight '{}' of {}", planned.module.weight, checkpoint_.path));
      throw;
    }
    return layer;
  }

 private:
  // Which weight it is, of those that share a scale, and how many values.
  void refuse_damaged(const Planned& planned) const {
    for (const Planned& other : planned_)
      if (&other == &planned || (planned.fused >= 0 && other.fused == planned.fused))
        refuse_nonfinite(other.module.weight, checkpoint_.weights->get(other.module.weight),
                         checkpoint_.path);
  }

  void as_peer(const std::vector<float>& rows, QuantizedLinear& layer) const {
    const quant::CtFormat format = parity_format(layer.weights, layer.module);
    quant::CtQuantized result =
        quant::ct_quantize(format, rows.data(), layer.outs, layer.ins, layer.weights.group);
    layer.codes = std::move(result.codes);
    if (is_integer(layer.weights.codes)) {
      if (!layer.weights.symmetric) layer.weights.codes = DType::kI4;  // zero points are signed there
      for (std::uint8_t& code : layer.codes)
        code = static_cast<std::uint8_t>(static_cast<std::int8_t>(code << 4) >> 4);
    }
    layer.zero_points = std::move(result.zero_points);
    layer.global = result.global;
    layer.global_divides = format == quant::CtFormat::kNvfp4;
    layer.scales.resize(result.scales.size());
    for (std::size_t i = 0; i < result.scales.size(); ++i) {
      if (layer.weights.scales == DType::kBF16) {
        layer.scales[i] = decode_bf16(result.scales[i]);
        continue;
      }
      const auto byte = static_cast<std::uint8_t>(result.scales[i]);
      format_info(layer.weights.scales).decode(&byte, &layer.scales[i], 1);
    }
  }

  // No more floats in memory than some rows, but for weights that are stored [in, out].
  void by_stored(const Planned& planned, QuantizedLinear& layer) const {
    const LinearModule& module = planned.module;
    Tensor weight = checkpoint_.weights->get(module.weight);
    if (module.in_first)
      weight =
          Tensor::from(DType::kF32, {layer.outs, layer.ins}, rows_of(checkpoint_, module, *options_.pool));
    quant::GridFormat format = quant::grid_format(planned.weights);
    quant::StoredCodes stored;
    if (layer.weights.row_group > 1) {
      format.group = 0;
      format.rows = 1;
      stored = quant::quantize_stored_blocks(format, weight, layer.weights.row_group, layer.weights.group,
                                             planned.search, *options_.pool);
    } else if (layer.weights.row_group == 0) {
      stored = quant::quantize_stored_tensor(format, weight, planned.search, *options_.pool);
    } else {
      const float global = format.scales == DType::kE4M3FN ? global_of(planned) : 0;
      stored = quant::quantize_stored(format, weight, planned.search, global, *options_.pool);
    }
    set_codes(layer, stored.grid, std::move(stored.codes), true);
  }

  // Of the largest magnitude of the weights that share it; one that both forms of the formula can hold.
  float global_of(const Planned& planned) const {
    if (planned.fused < 0) return global_from(amax_of(planned.module));
    float& known = globals_[static_cast<std::size_t>(planned.fused)];
    if (known != 0) return known;
    float amax = 0;
    for (const Planned& other : planned_)
      if (other.fused == planned.fused) amax = std::max(amax, amax_of(other.module));
    return known = global_from(amax);
  }

  float amax_of(const LinearModule& module) const {
    return quant::stored_amax(checkpoint_.weights->get(module.weight), *options_.pool);
  }
  static float global_from(float amax) {
    return amax > 0 && std::isfinite(amax) ? turnable_global(amax / kNvfp4Largest) : 1.0f;
  }

  const Checkpoint& checkpoint_;
  StreamOptions options_;
  QuantizedModel model_;
  std::vector<Planned> planned_;
  mutable std::vector<float> globals_;  // by Planned::fused; 0: not known yet
};

}  // namespace

bool can_stream(const quant::Spec& spec) {
  const auto fits = [](const std::string& method) {
    return method == "rtn" || method == "search" || method == "auto";
  };
  const auto at_run_time = [](const quant::Format& f) { return !f.active() || f.dynamic; };
  if (!fits(spec.method) || !at_run_time(spec.activations) || spec.kv_cache.active()) return false;
  return std::all_of(spec.rules.begin(), spec.rules.end(), [&](const quant::Rule& rule) {
    return (!rule.method || fits(*rule.method)) && (!rule.activations || at_run_time(*rule.activations));
  });
}

DType float_type_of(const Checkpoint& checkpoint) {
  // The type of most elements that are floats.
  std::map<std::string, std::int64_t> elements;
  for (const WeightStore::Entry& entry : checkpoint.weights->entries())
    elements[entry.type] += element_count(entry.dims);
  DType best = DType::kF32;
  std::int64_t most = 0;
  for (const auto& [type, count] : elements) {
    DType dtype = DType::kUndefined;
    if (!dtype_from_name(type, dtype) || !is_float(dtype) || bits(dtype) < 16 || count <= most) continue;
    best = dtype;
    most = count;
  }
  return best;
}

std::unique_ptr<QuantizedSource> stream_source(const Checkpoint& checkpoint, const quant::Spec& spec,
                                               const StreamOptions& options, std::vector<LeftFloat>* left) {
  return std::make_unique<StreamSource>(checkpoint, spec, options, left);
}

}  // namespace pare
