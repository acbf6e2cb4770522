#include "tests/unit/test_paths.h"

#include <cstdlib>
#include <fstream>

namespace pare {

std::string source_path(const std::string& name) { return std::string(PARE_SOURCE_DIR) + "/" + name; }

std::string shared_path(const std::string& name) {
  const char* folder = std::getenv("PARE_SHARED_DIR");
  return std::string(folder != nullptr ? folder : PARE_SHARED_DIR) + "/" + name;
}

bool has_shared_files() { return std::ifstream(shared_path("models/README.md")).good(); }

}  // namespace pare
