// Real models that the tests of graphsurgeon walk.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/test_paths.h"

namespace pare {

// Those in the tree, and those of the shared folder where it is there.
inline std::vector<std::string> real_models() {
  std::vector<std::string> paths;
  for (const char* name : {"resnet", "mobilenet", "vit"})
    paths.push_back(source_path(std::string("examples/fashion/") + name + ".onnx"));
  if (!has_shared_files()) return paths;
  for (const char* name :
       {"blazeface/blazeface_back_256", "efficientnet/efficientnet_lite0", "magika/model",
        "mlsd/mlsd_512x512_large", "ocr/ppocrv4_det", "ocr/ppocrv4_rec", "silero/silero_vad_16k_sequence",
        "silero/silero_vad_op18_ifless", "silero/silero_vad_v5", "silero/silero_vad_v6"})
    paths.push_back(shared_path(std::string("models/") + name + ".onnx"));
  return paths;
}

}  // namespace pare
