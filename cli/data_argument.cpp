#include "cli/data_argument.h"

#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "recipes/grammar/load.h"
#include "recipes/text_data.h"

namespace pare {

const char* const kDataHelp =
    "FILE:key=value,... (images.npy:layout=nhwc_to_nchw,scale=1/255), or a YAML file with those keys";

namespace {

DatasetSpec parse(const std::string& text) {
  if (text.empty()) throw make_error(ErrorCode::kUsage, "--data is empty").hint(kDataHelp);
  const std::string kind = file_extension(text);
  if (kind == ".yaml" || kind == ".yml") {
    const std::string yaml = read_text_file(text, limits::kMaxRecipeBytes);
    if (yaml.rfind("datasets:", 0) == 0 || yaml.find("\ndatasets:") != std::string::npos)
      throw make_error(ErrorCode::kUsage, "this is a whole recipe, and --data wants one data set")
          .at(text)
          .hint("copy one mapping under `datasets` into a file of its own, or write FILE:key=value,...");
    return load_dataset_file(text).spec;
  }
  return parse_data_argument(text);
}

}  // namespace

DatasetSpec data_argument(const std::string& text, const std::string& model) {
  DatasetSpec spec = parse(text);
  complete_text(spec, model);
  return spec;
}

}  // namespace pare
