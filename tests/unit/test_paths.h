// Where the tests find files: in the checkout, or real models and data beside it.
#pragma once

#include <string>

namespace pare {

std::string source_path(const std::string& name);  // "examples/fashion/resnet.onnx" in the checkout
// Below the folder `shared` beside the checkout (or below PARE_SHARED_DIR of the environment): models, data,
// expected results that are too large for the tree. Tests of them skip when it is not there.
std::string shared_path(const std::string& name);
bool has_shared_files();

}  // namespace pare
