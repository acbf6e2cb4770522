// Writing files so that a killed or failed run never leaves half a file under its final name.
//
//   AtomicFile   a whole file: written to a temporary name in the same folder, fsync, rename
//   AppendFile   a journal: whole records appended and synced one by one
//
// Every file that pare writes goes through one of these two (HDF5, which opens files itself, through
// AtomicFile::temporary_path). Errors: kDevice naming the final path and the reason (disk full, no
// permission, read-only); kUsage when the path is a directory, a device or a pipe.
//
// Simulated full disk: PARE_TEST_DISK_FULL_AFTER=N in the environment lets this process write N bytes in
// all, over all files; what would pass that fails as a full disk does (ENOSPC). Files written by a library
// are counted when they are committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pare {

class AtomicFile {
 public:
  // Makes the temporary file. A symbolic link is followed, so the file that it points to is replaced.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // without commit(): removes the temporary, the old file (if any) stays
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // At a place, in any order, of a file whose layout is known. Every byte must be written once; not to be
  // mixed with write().
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  std::uint64_t written() const { return written_; }  // bytes given to write() and write_at() so far

  // For a library that opens the file itself (HDF5): it may truncate and write this path, must have closed
  // it before commit(), and must not replace it by another file. Do not mix with write().
  const std::string& temporary_path() const { return temporary_; }

  // Flushes to the disk and closes; only commit() may follow. For files that must appear together.
  void seal();

  // Seals and renames to the final path. The file is complete or absent, whatever happens.
  void commit();

  const std::string& final_path() const { return final_; }  // links resolved

 private:
  [[noreturn]] void fail_io(const char* doing, int error_number) const;

  std::string path_;       // as given; named in errors
  std::string final_;      // where it goes, links resolved
  std::string temporary_;  // in the folder of final_
  int descriptor_ = -1;
  std::uint64_t written_ = 0;
  bool committed_ = false;
};

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::string& path, std::string_view text);

// Records at the end of a file. A kill may leave the last record cut short: a reader drops a record
// without its end mark (the newline of a JSON line).
class AppendFile {
 public:
  explicit AppendFile(const std::string& path);  // made if it is missing
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view record);  // one write, then fdatasync

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Removes temporaries in `directory` whose process is gone (killed). Call it only in a folder of which this
// process holds the lock. Returns how many were removed.
int remove_stale_temporaries(const std::string& directory);

// The same as PARE_TEST_DISK_FULL_AFTER, from a test of this process; negative means no limit.
void set_test_disk_space(std::int64_t bytes);

}  // namespace pare
