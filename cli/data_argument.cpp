#include "cli/data_argument.h"

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "recipes/load.h"

namespace pare {

const char* const kDataHelp =
    "FILE:key=value,... (images.npy:layout=nhwc_to_nchw,scale=1/255), or a YAML file with those keys";

DatasetSpec data_argument(const std::string& text) {
  if (text.empty()) throw make_error(ErrorCode::kUsage, "--data is empty").hint(kDataHelp);
  const std::string kind = file_extension(text);
  if (kind == ".yaml" || kind == ".yml") return load_dataset_file(text).spec;
  return parse_data_argument(text);
}

}  // namespace pare
