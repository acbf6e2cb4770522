#include "graphsurgeon/checkpoint/read_quantized.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/reader_hints.h"
#include "engine/numeric/convert.h"
#include "graphsurgeon/checkpoint/read_linear.h"

namespace pare {
namespace {

bool ends_with(const std::string& text, const std::string& tail) {
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

DType dtype_of(const WeightStore::Entry& entry) {
  DType type = DType::kF32;  // blocks come out so
  dtype_from_name(entry.type, type);
  return type;
}

// Types that only codes have.
bool is_code_type(const std::string& type) {
  return type == name(DType::kI8) || type == name(DType::kU8) || type == name(DType::kE4M3FN) ||
         type == name(DType::kE5M2);
}

// The scale of keys or values of an attention module, by any of the names that files have for it.
struct CacheScale {
  std::string attention;
  bool key = false;
};
bool is_cache_scale(const std::string& tensor, CacheScale& out) {
  const std::pair<const char*, bool> kNames[] = {{".k_proj.k_scale", true},
                                                 {".v_proj.v_scale", false},
                                                 {".k_proj.output_scale", true},
                                                 {".v_proj.output_scale", false},
                                                 {".attn.k_scale", true},
                                                 {".attn.v_scale", false},
                                                 {".k_scale", true},
                                                 {".v_scale", false}};
  for (const auto& [tail, key] : kNames)
    if (ends_with(tensor, tail)) {
      out = {tensor.substr(0, tensor.size() - std::string(tail).size()), key};
      return true;
    }
  return false;
}

FloatTensor float_tensor_of(const WeightStore::Entry& entry) {
  return {entry.name, dtype_of(entry), entry.dims};
}

// Files name the linear modules that they leave alone: two-dimensional weights that are no table of
// embeddings.
void name_ignored(QuantizedModel& model) {
  for (const FloatTensor& tensor : model.floats)
    if (tensor.dims.size() == 2 && ends_with(tensor.name, ".weight") &&
        tensor.name.find("embed") == std::string::npos && tensor.name.find("norm") == std::string::npos &&
        !ends_with(tensor.name, "wte.weight") && !ends_with(tensor.name, "wpe.weight"))
      model.ignored.push_back(tensor.name.substr(0, tensor.name.size() - 7));
}

constexpr ReaderHints kHints = {
    "download the checkpoint again, or have the tool that quantized it write it again",
    "give the float checkpoint, which pare quantizes itself"};

class FolderSource final : public QuantizedSource {
 public:
  FolderSource(const std::string& folder, std::shared_ptr<const WeightStore> stored,
               const QuantizationConfig& config)
      : stored_(std::move(stored)), config_(config) {
    model_.folder = folder;
    std::set<std::string> modules;
    for (const WeightStore::Entry& entry : stored_->entries())
      if (const char* part = quantized_part(entry.name))
        modules.insert(entry.name.substr(0, entry.name.size() - std::string(part).size() - 1));
    for (const std::string& module : modules) {
      LinearFormat format = with_context(fmt::format("reading the quantized checkpoint '{}'", folder),
                                         [&]() -> LinearFormat { return read(module, false); });
      model_.layers.push_back(std::move(format));
    }
    std::map<std::string, KvScales> caches;
    for (const WeightStore::Entry& entry : stored_->entries()) {
      const std::size_t dot = entry.name.rfind('.');
      const std::string module = dot == std::string::npos ? "" : entry.name.substr(0, dot);
      const std::string last = entry.name.substr(dot == std::string::npos ? 0 : dot + 1);
      if (modules.count(module) != 0 && is_part_of_linear(last)) continue;
      if (CacheScale scale; is_cache_scale(entry.name, scale)) {
        take_cache_scale(entry, scale, caches);
        continue;
      }
      if (last == "weight" && is_code_type(entry.type))
        throw make_error(ErrorCode::kBadFile, "'{}' is {}, and there is no scale for it", entry.name,
                         entry.type)
            .at(folder)
            .hint("its scale would be '" + module + ".weight_scale'; was the checkpoint saved whole?");
      model_.floats.push_back(float_tensor_of(entry));
    }
    if (config_.kv_cache.active()) {
      model_.kv_cache = config_.kv_cache.is_float ? DType::kE4M3FN : DType::kI8;
      for (auto& [attention, scales] : caches) model_.kv_scales.push_back(scales);
    }
    name_ignored(model_);
  }

  const QuantizedModel& model() const override { return model_; }
  QuantizedLinear layer(std::size_t index) const override {
    return with_context(fmt::format("reading the quantized checkpoint '{}'", model_.folder), kHints,
                        [&] { return read(model_.layers[index].module, true); });
  }
  Tensor float_tensor(const std::string& name) const override { return stored_->get(name); }

 private:
  QuantizedLinear read(const std::string& module, bool numbers) const {
    return read_linear(*stored_, config_, module, numbers);
  }

  void take_cache_scale(const WeightStore::Entry& entry, const CacheScale& scale,
                        std::map<std::string, KvScales>& caches) const {
    const Tensor tensor = stored_->get(entry.name);
    if (tensor.size() != 1 || tensor.dtype() == DType::kString || !is_float(tensor.dtype()) ||
        bits(tensor.dtype()) < 16)
      throw make_error(ErrorCode::kBadFile, "'{}' is {} {}, not one float", entry.name, entry.type,
                       to_string(entry.dims))
          .at(model_.folder);
    float value = 0;
    convert(tensor.view(), {DType::kF32, {1}, &value});
    if (!(value > 0))
      throw make_error(ErrorCode::kBadFile, "'{}' is not above 0", entry.name).at(model_.folder);
    KvScales& both = caches[scale.attention];
    both.attention = scale.attention;
    (scale.key ? both.key : both.value) = value;
  }

  std::shared_ptr<const WeightStore> stored_;
  QuantizationConfig config_;
  QuantizedModel model_;
};

class DequantizingWeights final : public WeightStore {
 public:
  DequantizingWeights(std::shared_ptr<const QuantizedSource> source,
                      std::shared_ptr<const WeightStore> stored)
      : source_(std::move(source)), stored_(std::move(stored)) {
    const QuantizedModel& model = source_->model();
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const LinearFormat& layer = model.layers[i];
      const std::string weight = layer.module + ".weight";
      layers_[weight] = i;
      Entry entry;
      entry.name = weight;
      entry.type = to_string(layer.weights);
      entry.dims = layer.in_first ? Dims{layer.ins, layer.outs} : Dims{layer.outs, layer.ins};
      entries_.push_back(std::move(entry));
    }
    for (const FloatTensor& tensor : model.floats) entries_.push_back(*stored_->find(tensor.name));
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    for (const Entry& entry : stored_->entries()) take_bytes(entry);
    for (const KvScales& scales : model.kv_scales) caches_[scales.attention] = scales;
  }

  Tensor get(const std::string& name) const override {
    const auto found = layers_.find(name);
    if (found == layers_.end()) return stored_->get(name);
    const QuantizedLinear layer = source_->layer(found->second);
    Tensor values = Tensor::allocate(DType::kF32, {layer.outs, layer.ins});
    dequantize_linear(layer, values.mut<float>());
    if (!layer.factors.empty())  // x f W^T = x (f W)^T
      for (std::int64_t i = 0; i < values.size(); ++i)
        values.mut<float>()[i] *= layer.factors[static_cast<std::size_t>(i % layer.ins)];
    return layer.in_first ? turned(values) : values;
  }
  const LinearFormat* coded(const std::string& name) const override {
    const auto found = layers_.find(name);
    return found == layers_.end() ? nullptr : &source_->model().layers[found->second];
  }
  QuantizedLinear codes(const std::string& name) const override { return source_->layer(layers_.at(name)); }
  const KvScales* kv_scales(const std::string& attention, DType& type) const override {
    type = source_->model().kv_cache;
    if (type == DType::kUndefined) return nullptr;
    const auto found = caches_.find(attention);
    return found == caches_.end() ? &unit_ : &found->second;  // as vLLM has it
  }

 private:
  static Tensor turned(const Tensor& from) {
    const std::int64_t rows = from.dims()[0], cols = from.dims()[1];
    Tensor to = Tensor::allocate(DType::kF32, {cols, rows});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) to.mut<float>()[c * rows + r] = from.as<float>()[r * cols + c];
    return to;
  }

  // Where a layer's parts are, and how much they take.
  void take_bytes(const Entry& stored) {
    const std::size_t dot = stored.name.rfind('.');
    if (dot == std::string::npos || !is_part_of_linear(stored.name.substr(dot + 1))) return;
    const std::string weight = stored.name.substr(0, dot) + ".weight";
    if (layers_.count(weight) == 0) return;
    auto& entry = *std::lower_bound(entries_.begin(), entries_.end(), weight,
                                    [](const Entry& e, const std::string& text) { return e.name < text; });
    entry.bytes += stored.bytes;
    if (entry.file.empty()) entry.file = stored.file;
  }

  std::shared_ptr<const QuantizedSource> source_;
  std::shared_ptr<const WeightStore> stored_;
  std::map<std::string, std::size_t> layers_;  // by the weight's name
  std::map<std::string, KvScales> caches_;
  KvScales unit_;
};

}  // namespace

std::unique_ptr<QuantizedSource> make_quantized_source(const std::string& folder,
                                                       std::shared_ptr<const WeightStore> stored,
                                                       const QuantizationConfig& config) {
  return with_hints(kHints,
                    [&] { return std::make_unique<FolderSource>(folder, std::move(stored), config); });
}

std::unique_ptr<WeightStore> make_dequantizing_weights(std::shared_ptr<const QuantizedSource> source,
                                                       std::shared_ptr<const WeightStore> stored) {
  return std::make_unique<DequantizingWeights>(std::move(source), std::move(stored));
}

std::unique_ptr<QuantizedSource> open_quantized(const std::string& path) {
  if (!is_directory(path))
    throw make_error(ErrorCode::kUnsupported, "'{}' is no checkpoint folder", path)
        .at(path)
        .hint("a GGUF file has no config.json and tokenizer.json to go along");
  const QuantizationConfig config = read_quantization_config(path);
  if (!config.active())
    throw make_error(ErrorCode::kUsage,
                     "the checkpoint is not quantized: config.json has no quantization_config")
        .at(path)
        .hint("`pare quantize` quantizes it");
  return make_quantized_source(path, open_safetensors_weights(path), config);
}

}  // namespace pare
