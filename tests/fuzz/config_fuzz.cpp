// config.json: any text gives a config, a model of its family in outline, or an Error that blames the file.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/checkpoint/checkpoint.h"
#include "graphsurgeon/families/family.h"
#include "tests/fuzz/blame.h"

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
    pare::Checkpoint checkpoint;
    checkpoint.path = "fuzz";
    checkpoint.config = config;
    checkpoint.family = family;
    checkpoint.weights = std::make_shared<NoWeights>();
    pare::build_graph(checkpoint, options);
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
  return 0;
}
