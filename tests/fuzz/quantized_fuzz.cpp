// Quantized checkpoints: a .safetensors file whose metadata hold the texts of config.json ("config") and
// hf_quant_config.json ("modelopt"). Any bytes give layers that dequantize, or an Error that blames the file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/checkpoint/read_quantized.h"
#include "graphsurgeon/checkpoint/safetensors.h"
#include "tests/fuzz/blame.h"

namespace {

class ParsedWeights final : public pare::WeightStore {
 public:
  explicit ParsedWeights(pare::SafetensorsFile file) : file_(std::move(file)) {
    for (const auto& [name, tensor] : file_.tensors) {
      Entry entry;
      entry.name = name;
      entry.type = pare::name(tensor.dtype());
      entry.dims = tensor.dims();
      entry.bytes = tensor.bytes();
      entries_.push_back(std::move(entry));
    }
  }
  pare::Tensor get(const std::string& name) const override {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end()) pare::fail(pare::ErrorCode::kBadFile, "no tensor '{}'", name);
    return found->second;
  }

 private:
  pare::SafetensorsFile file_;
};

pare::Json text_of(const pare::SafetensorsFile& file, const char* key) {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? pare::Json() : pare::parse_json(found->second, key);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    pare::SafetensorsFile file = pare::parse_safetensors(bytes, nullptr, "fuzz.safetensors");
    const pare::Json config = text_of(file, "config"), modelopt = text_of(file, "modelopt");
    const pare::QuantizationConfig quantization = pare::parse_quantization_config(
        config.is_null() ? pare::Json::object() : config, modelopt, "config.json");
    if (!quantization.active()) return 0;
    const auto stored = std::make_shared<const ParsedWeights>(std::move(file));
    const std::shared_ptr<const pare::QuantizedSource> source =
        pare::make_quantized_source("folder", stored, quantization);
    const auto weights = pare::make_dequantizing_weights(source, stored);
    volatile float sum = 0;
    for (const pare::WeightStore::Entry& entry : weights->entries())
      if (weights->coded(entry.name) != nullptr) {
        const pare::Tensor values = weights->get(entry.name);
        for (std::int64_t i = 0; i < values.size(); ++i) sum = sum + values.as<float>()[i];
      }
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
  return 0;
}
