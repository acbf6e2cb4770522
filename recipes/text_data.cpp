#include "recipes/text_data.h"

#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "graphsurgeon/checkpoint/tokenizer_json.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/open_checkpoint.h"

namespace pare {
namespace {

TokenizerSpec read_any(const std::string& path) {
  if (file_extension(path) != ".json") return checkpoint_tokenizer(path);
  return parse_tokenizer(read_text_file(path, limits::kMaxJsonBytes), path);
}

}  // namespace

void complete_text(DatasetSpec& spec, const std::string& model) {
  if (!is_text(spec) || spec.tokens != nullptr) return;
  const ModelKind kind = model_kind(model);
  const bool checkpoint = kind == ModelKind::kCheckpoint || kind == ModelKind::kGguf;
  if (checkpoint) {
    const ModelConfig config = open_checkpoint(model).config;
    spec.positions = config.context;
    spec.vocabulary = config.vocabulary;
  }
  if (!spec.tokenizer.empty())
    spec.tokens = std::make_shared<TokenizerSpec>(read_any(spec.tokenizer));
  else if (checkpoint)
    spec.tokens = std::make_shared<TokenizerSpec>(checkpoint_tokenizer(model));
}

}  // namespace pare
