#include "graphsurgeon/forms/convert_quantized.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/numeric/convert.h"
#include "graphsurgeon/gguf/gguf_write.h"
#include "graphsurgeon/open_checkpoint.h"

namespace pare {
namespace {

bool is_plain(DType scales) {
  return scales == DType::kF32 || scales == DType::kF16 || scales == DType::kBF16;
}

// The type in which `dialect` wants the scales of a layer; the layer's own where it does not care.
DType wanted_scales(const LinearFormat& layer, Dialect dialect) {
  const CodeFormat& w = layer.weights;
  if (!is_plain(w.scales)) return w.scales;
  if (dialect == Dialect::kAutoAwq || dialect == Dialect::kGptq || dialect == Dialect::kGptqV2 ||
      dialect == Dialect::kGguf)
    return is_integer(w.codes) ? DType::kF16 : w.scales;
  if (dialect == Dialect::kModelOpt && w.codes == DType::kE4M3FN) return DType::kF32;
  return w.scales;
}

class Adapted final : public QuantizedSource {
 public:
  Adapted(std::shared_ptr<const QuantizedSource> source, Dialect dialect)
      : source_(std::move(source)), dialect_(dialect), model_(source_->model()) {
    for (LinearFormat& layer : model_.layers) change(layer);
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      const DType was = source_->model().layers[i].weights.scales, is = model_.layers[i].weights.scales;
      if ((was != is && is == DType::kF16) || was == DType::kE4M3FN)
        layer(i);  // throws where it does not fit
    }
  }
  const QuantizedModel& model() const override { return model_; }
  QuantizedLinear layer(std::size_t index) const override {
    QuantizedLinear layer = source_->layer(index);
    const bool narrower = layer.weights.scales != DType::kF16;
    change(layer);
    if (narrower && layer.weights.scales == DType::kF16) check_halves(layer);
    const bool divides = dialect_ == Dialect::kCompressedTensors;
    if (!turn_global(layer, divides))
      throw make_error(
          ErrorCode::kUnsupported,
          "{} holds the inverse of the global scale {}, and no float32 there gives the same steps",
          name(dialect_), layer.global)
          .at(fmt::format("layer '{}'", layer.module))
          .hint(
              "compressed_tensors divides by its global scale, modelopt multiplies; global scales that pare "
              "chooses can be turned");
    return layer;
  }
  Tensor float_tensor(const std::string& name) const override { return source_->float_tensor(name); }

 private:
  void change(LinearFormat& layer) const {
    layer.weights.scales = wanted_scales(layer, dialect_);
    if (layer.weights.row_group == 1 && layer.weights.group == layer.ins && is_plain(layer.weights.scales) &&
        !layer.act_order && dialect_ != Dialect::kGguf)
      layer.weights.group = 0;
  }

  void check_halves(const QuantizedLinear& layer) const {
    std::vector<float> back(layer.scales.size());
    round_through(DType::kF16, layer.scales.data(), back.data(), static_cast<std::int64_t>(back.size()));
    const auto differs = std::mismatch(back.begin(), back.end(), layer.scales.begin());
    if (differs.first != back.end())
      throw make_error(ErrorCode::kUnsupported, "{} holds scales in float16, and {} is no float16 number",
                       name(dialect_), *differs.second)
          .at(fmt::format("layer '{}'", layer.module))
          .hint(
              "quantize the float checkpoint for that format, or convert to one that keeps the scales: "
              "compressed_tensors");
  }

  std::shared_ptr<const QuantizedSource> source_;
  Dialect dialect_;
  QuantizedModel model_;
};

// Every weight again, out of the files that were written.
std::int64_t compare(const QuantizedSource& source, const std::vector<std::uint64_t>& values,
                     const std::string& output) {
  const std::unique_ptr<QuantizedSource> back = open_quantized(output);
  const std::vector<LinearFormat>&wanted = source.model().layers, &found = back->model().layers;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto at = std::find_if(found.begin(), found.end(),
                                 [&](const LinearFormat& layer) { return layer.module == wanted[i].module; });
    if (at == found.end() ||
        hash_of_values(back->layer(static_cast<std::size_t>(at - found.begin()))) != values[i])
      throw make_error(ErrorCode::kFailedGate, "layer '{}' read back is not what was written",
                       wanted[i].module)
          .at(output)
          .hint("this is a fault of pare; please report it");
  }
  return static_cast<std::int64_t>(wanted.size());
}

// Rows of queries and keys lie in ggml's order: neighbours turn together there, halves of a head elsewhere.
std::int64_t ggml_row(std::int64_t row, std::int64_t size) {
  const std::int64_t within = row % size, half = size / 2;
  return row - within + 2 * (within % half) + within / half;
}

std::int64_t compare_gguf(const QuantizedSource& source, const ModelConfig& config,
                          const std::string& output) {
  const Checkpoint back = open_checkpoint(output);
  const std::vector<LinearFormat>& layers = source.model().layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string& module = layers[i].module;
    const bool turned =
        back.config.rope.interleaved && (module.find("self_attn.q_proj") != std::string::npos ||
                                         module.find("self_attn.k_proj") != std::string::npos);
    const QuantizedLinear layer = source.layer(i);
    const Tensor found = back.weights->get(module + ".weight");
    std::vector<float> row(static_cast<std::size_t>(layer.ins));
    for (std::int64_t r = 0; r < layer.outs; ++r) {
      dequantize_linear(layer, r, r + 1, row.data());
      const float* there = found.as<float>() + (turned ? ggml_row(r, config.head_size) : r) * layer.ins;
      if (found.dims() != Dims{layer.outs, layer.ins} || !std::equal(row.begin(), row.end(), there))
        throw make_error(ErrorCode::kFailedGate, "layer '{}' read back is not what was written", module)
            .at(output)
            .hint("this is a fault of pare; please report it");
    }
  }
  return static_cast<std::int64_t>(layers.size());
}

// Of the tensors that stay float: the type that holds all of them.
const char* plain_gguf_type(const QuantizedModel& model) {
  const auto all = [&](DType type) {
    return std::all_of(model.floats.begin(), model.floats.end(), [&](const FloatTensor& tensor) {
      return tensor.dims.size() < 2 || tensor.dtype == type;
    });
  };
  return all(DType::kBF16) ? "BF16" : all(DType::kF16) ? "F16" : "F32";
}

// A model of floats alone.
class Dequantized final : public QuantizedSource {
 public:
  explicit Dequantized(const Checkpoint& checkpoint) : weights_(checkpoint.weights) {
    model_.folder = checkpoint.path;
    for (const WeightStore::Entry& entry : weights_->entries()) {
      FloatTensor tensor{entry.name, DType::kF32, entry.dims};
      if (weights_->coded(entry.name) == nullptr) dtype_from_name(entry.type, tensor.dtype);
      model_.floats.push_back(std::move(tensor));
    }
  }
  const QuantizedModel& model() const override { return model_; }
  QuantizedLinear layer(std::size_t) const override { return {}; }  // there are none
  Tensor float_tensor(const std::string& name) const override { return weights_->get(name); }

 private:
  std::shared_ptr<const WeightStore> weights_;
  QuantizedModel model_;
};

// Does what the new config says of the inputs mean what they are? ("MXFP8" of Model Optimizer rounds them, of
// compressed-tensors it may not.)
void check_inputs(const QuantizedModel& model, Dialect dialect) {
  Json whole = Json::object();
  whole["quantization_config"] = dialect_info(dialect).config(model);
  // As a file would have it: numbers change their kinds on the way.
  const QuantizationConfig config =
      parse_quantization_config(parse_json(dump(whole), name(dialect)), Json(), name(dialect));
  for (const LinearFormat& layer : model.layers) {
    const QuantizationScheme* scheme = config.scheme_of(layer.module);
    PARE_ASSERT(scheme != nullptr);
    const QuantizationArgs& args = scheme->inputs;
    const CodeFormat& x = layer.inputs;
    const bool same = args.active() == x.active() &&
                      (!x.active() || (args.is_float == is_float(x.codes) && args.bits == bits(x.codes) &&
                                       args.two_levels == x.two_levels() &&
                                       args.power_scales == (x.scales == DType::kE8M0) &&
                                       (x.two_levels() || args.dynamic == x.dynamic)));
    if (!same)
      throw make_error(ErrorCode::kUnsupported,
                       "{} has other rules for the inputs of a layer that is coded as {}", name(dialect),
                       to_string(layer.weights))
          .at(fmt::format("layer '{}'", layer.module))
          .hint(fmt::format("its inputs are {}", x.active() ? to_string(x) : "float"));
  }
}

}  // namespace

std::unique_ptr<QuantizedSource> adapt_to(std::shared_ptr<const QuantizedSource> source, Dialect dialect) {
  return std::make_unique<Adapted>(std::move(source), dialect);
}

ConvertedCheckpoint convert_quantized(const Checkpoint& checkpoint, Dialect dialect,
                                      const std::string& output, ThreadPool& pool) {
  if (checkpoint.quantized == nullptr)
    throw make_error(ErrorCode::kUsage, "the checkpoint is not quantized")
        .at(checkpoint.path)
        .hint(fmt::format("`pare quantize {} --format SCHEME --export {}` quantizes it", checkpoint.path,
                          name(dialect)));
  const std::unique_ptr<QuantizedSource> adapted = adapt_to(checkpoint.quantized, dialect);
  const QuantizedSource& source = *adapted;
  ConvertedCheckpoint result;
  if (dialect != Dialect::kGguf) {
    check_dialect(dialect, source.model());
    check_inputs(source.model(), dialect);
    result.written = write_quantized(source, dialect, output);
    result.layers = compare(source, result.written.values, output);
    return result;
  }
  check_gguf(source.model().layers, checkpoint.path);
  GgufWriteOptions options;
  options.type = options.embedding = plain_gguf_type(source.model());
  options.pool = &pool;
  options.layers = &source;
  const WrittenGguf written = write_gguf(checkpoint, output, options);
  result.written.files = {file_name(output)};
  result.written.bytes = written.bytes;
  result.written.tensors = written.tensors;
  result.layers = compare_gguf(source, checkpoint.config, output);
  return result;
}

WrittenCheckpoint write_dequantized(const Checkpoint& checkpoint, const std::string& output) {
  if (checkpoint.quantized == nullptr)
    throw make_error(ErrorCode::kUsage, "the checkpoint is not quantized")
        .at(checkpoint.path)
        .hint("pare quantize CHECKPOINT --format SCHEME --export FORM makes one that is");
  return write_floats(Dequantized(checkpoint), output);
}

}  // namespace pare
