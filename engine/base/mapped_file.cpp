#include "engine/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

namespace pare {

namespace {

const char* hint_for(int error_number) {
  switch (error_number) {
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "a part of the path before the last is a file";
    case EACCES:
    case EPERM:
      return "this user may not read it; check the permissions of the file and of its folders";
    case EISDIR:
      return "this is a folder; give the path of a file in it";
    case EMFILE:
    case ENFILE:
      return "too many files are open; raise the limit (ulimit -n)";
    default:
      return "";
  }
}

[[noreturn]] void fail_open(const std::string& path, int error_number) {
  throw make_error(ErrorCode::kBadFile, "cannot open '{}': {}", path, std::strerror(error_number))
      .hint(hint_for(error_number));
}

// Closes at the end of the scope.
struct Descriptor {
  explicit Descriptor(const std::string& path) {
    // O_NONBLOCK: opening a pipe that nobody writes must not hang before its kind is looked at.
    number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (number < 0) fail_open(path, errno);
    if (::fstat(number, &status) != 0) {
      const int error_number = errno;
      ::close(number);
      fail_open(path, error_number);
    }
    if (S_ISDIR(status.st_mode)) {
      ::close(number);
      fail_open(path, EISDIR);
    }
  }
  ~Descriptor() { ::close(number); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number = -1;
  struct stat status {};
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(path);
  if (!S_ISREG(file.status.st_mode))
    throw make_error(ErrorCode::kBadFile, "cannot open '{}': it is not a regular file", path)
        .hint("pipes and devices cannot be mapped; save the data to a file first");
  const auto size = static_cast<std::size_t>(file.status.st_size);
  if (size == 0) return;  // mmap refuses a length of 0
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (memory == MAP_FAILED) fail_open(path, errno);
  owner_ = std::shared_ptr<const void>(
      memory, [size](const void* start) { ::munmap(const_cast<void*>(start), size); });
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

std::string read_text_file(const std::string& path, std::size_t limit) {
  const Descriptor file(path);
  const int flags = ::fcntl(file.number, F_GETFL);
  ::fcntl(file.number, F_SETFL, flags & ~O_NONBLOCK);  // a pipe is waited for
  const auto too_long = [&] {
    return make_error(ErrorCode::kBadFile, "'{}' has more than the {} bytes allowed for such a file", path,
                      limit)
        .hint("is it the right file?");
  };
  // A regular file tells its size; a pipe does not. Either may change while it is read.
  if (S_ISREG(file.status.st_mode) && static_cast<std::uint64_t>(file.status.st_size) > limit)
    throw too_long();
  constexpr std::size_t kPiece = 64 * 1024;
  std::string text;
  while (true) {
    const std::size_t size = text.size();
    text.resize(size + kPiece);
    const ssize_t count = ::read(file.number, text.data() + size, kPiece);
    if (count < 0 && errno != EINTR)
      throw make_error(ErrorCode::kBadFile, "cannot read '{}': {}", path, std::strerror(errno))
          .hint("look at its permissions, and at the disk that it is on");
    text.resize(size + static_cast<std::size_t>(count < 0 ? 0 : count));
    if (text.size() > limit) throw too_long();
    if (count == 0) return text;
  }
}

}  // namespace pare
