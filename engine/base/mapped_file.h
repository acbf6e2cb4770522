// Reading files: as a read-only mapping (models, arrays, images), or as text.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace pare {

// A regular file mapped read-only; copies share the mapping. An empty file gives an empty span.
//
// Errors: kBadFile "cannot open 'x': reason" with a hint for missing files, missing rights, directories and
// special files (pipes, devices). The bytes are the file's own pages: a file that is cut short by someone
// else while it is mapped kills the process (SIGBUS), as with every mmap. What pare writes is renamed into
// place, never changed in place (atomic_file.h).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Keeps the mapping alive: Tensor::share(type, dims, file.bytes().data() + n, file.owner()).
  std::shared_ptr<const void> owner() const { return owner_; }

 private:
  std::string path_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

// The whole of a text file or pipe, unchanged (no newline or encoding conversion).
// Errors: kBadFile as above (but pipes are read), and when there are more than `limit` bytes.
std::string read_text_file(const std::string& path, std::size_t limit);

}  // namespace pare
