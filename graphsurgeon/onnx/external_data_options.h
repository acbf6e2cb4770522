// How a model's weights lie in files beside it.
#pragma once

#include <cstdint>
#include <string>

namespace pare {

enum class ExternalFiles {
  kNone,
  kOne,       // "MODEL.data", or ExternalOptions::location
  kPerTensor  // "MODEL.TENSOR.data"
};

struct ExternalOptions {
  ExternalFiles files = ExternalFiles::kNone;
  std::int64_t threshold = 1024;  // bytes; smaller tensors stay in the model
  std::string location;           // a plain file name
};

}  // namespace pare
