// config.json: any text gives a config, a model of its family in outline, or an Error that blames the file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/families/family.h"

namespace {

class NoWeights final : public pare::WeightStore {
 public:
  pare::Tensor get(const std::string&) const override { return {}; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    pare::ModelConfig config = pare::parse_model_config(pare::parse_json(text, "config.json"), "config.json");
    pare::check_model_config(config);
    const pare::Family* family = pare::find_family(config.model_type);
    // Tables of cos and sin are the one thing that is made before a weight is asked for.
    if (family == nullptr || config.layers > 4 || config.experts > 8 || config.head_size > 4096) return 0;
    std::vector<std::string> needed;
    pare::BuildOptions options;
    options.views = true;
    options.context = 2;
    options.needed = &needed;
    const NoWeights none;
    pare::NetBuilder net(config, none, options);
    family->build(net);
  } catch (const pare::Error& error) {
    if (error.code() != pare::ErrorCode::kBadFile && error.code() != pare::ErrorCode::kUnsupported)
      std::abort();
  }
  return 0;
}
