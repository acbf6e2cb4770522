// A folder for the files of one test, removed at its end.
#pragma once

#include <span>
#include <string>

#include "engine/base/atomic_file.h"
#include "engine/base/paths.h"

namespace pare {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(make_temporary_directory()) {}
  ~TemporaryFolder() { remove_tree(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return join_path(path_, name); }
  std::string write(const std::string& name, const std::string& bytes) const {
    write_file_atomically(file(name), bytes);
    return file(name);
  }

 private:
  std::string path_;
};

}  // namespace pare
