#include "engine/base/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/paths.h"

namespace pare {

namespace {

constexpr const char* kTemporaryPrefix = ".pare-tmp-";  // then the process id, '-', a number

std::int64_t disk_space_from_environment() {
  const char* text = std::getenv("PARE_TEST_DISK_FULL_AFTER");
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (*end != '\0' || errno != 0 || value < 0)
    throw make_error(ErrorCode::kUsage, "PARE_TEST_DISK_FULL_AFTER is '{}', not a number of bytes", text)
        .hint("unset the variable: it is for tests");
  return value;
}

// What the simulated disk still takes; negative: no simulation.
std::atomic<std::int64_t>& disk_space() {
  static std::atomic<std::int64_t> space{disk_space_from_environment()};
  return space;
}

// How many of `bytes` the simulated disk takes; they are then used up.
std::size_t take_disk_space(std::size_t bytes) {
  std::int64_t left = disk_space().load();
  while (left >= 0) {
    const std::int64_t taken = std::min(left, static_cast<std::int64_t>(bytes));
    if (disk_space().compare_exchange_weak(left, left - taken)) return static_cast<std::size_t>(taken);
  }
  return bytes;
}

// Writes all of it, at the end (offset < 0) or at a place; returns 0 or an errno. A simulated full disk takes
// what fits first, as a real one.
int write_all(int descriptor, const char* data, std::size_t size, off_t offset = -1) {
  const std::size_t fits = take_disk_space(size);
  for (std::size_t done = 0; done < fits;) {
    const ssize_t count =
        offset < 0 ? ::write(descriptor, data + done, fits - done)
                   : ::pwrite(descriptor, data + done, fits - done, offset + static_cast<off_t>(done));
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return fits == size ? 0 : ENOSPC;
}

Error io_error(const std::string& path, const char* doing, int error_number) {
  Error error =
      make_error(ErrorCode::kDevice, "cannot {} '{}': {}", doing, path, std::strerror(error_number));
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      error.hint("free some space or choose another folder for the output; nothing was left half-written");
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      error.hint("this user may not write there; choose another folder for the output");
      break;
    case ENOENT:
      error.hint("the folder does not exist; make it first");
      break;
    case ENOTDIR:
      error.hint("a part of the path before the last is a file");
      break;
    default:
      break;
  }
  return error;
}

// A rename is on the disk only when the folder is. Some file systems cannot; the data itself is safe.
void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

// Links are followed so that they stay links. The file itself may not exist yet.
std::string resolve_links(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
  return canonical_path(path);
}

}  // namespace

void set_test_disk_space(std::int64_t bytes) { disk_space() = bytes; }

AtomicFile::AtomicFile(const std::string& path) : path_(path), final_(resolve_links(path)) {
  struct stat status {};
  if (::stat(final_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw make_error(ErrorCode::kUsage, "cannot write '{}': it is a {}", path,
                     S_ISDIR(status.st_mode) ? "folder" : "device or pipe")
        .hint("give the path of a file");
  // O_EXCL with the process id and a counter: no other process and no other file of this one has the name.
  static std::atomic<unsigned> counter{0};
  const std::string name = fmt::format("{}{}-{}", kTemporaryPrefix, ::getpid(), counter++);
  temporary_ = join_path(parent_path(final_), name);
  descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno == EEXIST) {  // left by a killed process that had our id
    ::unlink(temporary_.c_str());
    descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  if (descriptor_ < 0) fail_io("write", errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_io(const char* doing, int error_number) const {
  throw io_error(path_, doing, error_number);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  PARE_ASSERT(descriptor_ >= 0);
  const int error_number = write_all(descriptor_, reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (error_number != 0) fail_io("write", error_number);
  written_ += bytes.size();
}

void AtomicFile::write(std::string_view text) {
  write(std::span(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  PARE_ASSERT(descriptor_ >= 0);
  const int error_number = write_all(descriptor_, reinterpret_cast<const char*>(bytes.data()), bytes.size(),
                                     static_cast<off_t>(offset));
  if (error_number != 0) fail_io("write", error_number);
  written_ += bytes.size();
}

void AtomicFile::seal() {
  PARE_ASSERT(descriptor_ >= 0);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_io("write", errno);
  // What a library wrote through temporary_path() has not been charged to the simulated disk yet.
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > written_) {
    const auto by_library = static_cast<std::size_t>(size - written_);
    if (take_disk_space(by_library) < by_library) fail_io("write", ENOSPC);
  }
  if (::fsync(descriptor_) != 0) fail_io("write", errno);
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail_io("write", errno);
}

void AtomicFile::commit() {
  PARE_ASSERT(!committed_);
  if (descriptor_ >= 0) seal();
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) fail_io("write", errno);
  committed_ = true;
  sync_folder(parent_path(final_));
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AppendFile::AppendFile(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw io_error(path_, "write", errno);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view record) {
  const int error_number = write_all(descriptor_, record.data(), record.size());
  if (error_number != 0) throw io_error(path_, "write", error_number);
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL) throw io_error(path_, "write", errno);
}

int remove_stale_temporaries(const std::string& directory) {
  int removed = 0;
  for (const std::string& name : list_directory(directory)) {
    if (name.rfind(kTemporaryPrefix, 0) != 0) continue;
    const long process = std::strtol(name.c_str() + std::strlen(kTemporaryPrefix), nullptr, 10);
    const bool alive = process > 0 && (::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
    if (alive) continue;  // perhaps being written
    if (::unlink(join_path(directory, name).c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace pare
