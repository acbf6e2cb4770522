// Files in and out: mappings, text, atomic replacement, journals, paths; and what each does when it fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/tensor.h"
#include "tests/unit/errors.h"

namespace pare {
namespace {

class Files : public testing::Test {
 protected:
  void TearDown() override {
    set_test_disk_space(-1);
    remove_tree(folder_);
  }
  std::string in(const std::string& name) const { return join_path(folder_, name); }
  static std::string read(const std::string& path) { return read_text_file(path, 1 << 20); }

  std::string folder_ = make_temporary_directory();
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(Files, MappingOutlivesItsObject) {
  write_file_atomically(in("a"), std::string_view("0123abcd"));
  Tensor tensor;
  {
    const MappedFile file(in("a"));
    EXPECT_EQ(text_of(file.bytes()), "0123abcd");
    tensor = Tensor::share(DType::kU8, {4}, file.bytes().data() + 4, file.owner());
  }
  remove_file(in("a"));
  EXPECT_EQ(std::memcmp(tensor.data(), "abcd", 4), 0);
}

TEST_F(Files, EmptyFileMapsToNothing) {
  write_file_atomically(in("empty"), std::string_view());
  EXPECT_TRUE(MappedFile(in("empty")).bytes().empty());
  EXPECT_EQ(read(in("empty")), "");
}

TEST_F(Files, RefusesWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(in("pipe").c_str(), 0600), 0);
  const struct {
    std::string path;
    const char* reason;
  } cases[] = {{in("missing"), "No such file"},
               {folder_, "Is a directory"},
               {in("pipe"), "not a regular file"},
               {"/dev/zero", "not a regular file"},
               {"", "No such file"}};
  for (const auto& c : cases) {
    const Error error = thrown_by([&] { MappedFile file(c.path); });
    EXPECT_EQ(error.code(), ErrorCode::kBadFile) << c.path;
    EXPECT_NE(std::string(error.what()).find("cannot open '" + c.path + "'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(c.reason), std::string::npos) << error.what();
    EXPECT_NE(error.hint(), "") << c.path;
  }
}

TEST_F(Files, TextHasALimitAndReadsPipes) {
  const std::string text(100'000, 'x');
  write_file_atomically(in("text"), text);
  EXPECT_EQ(read_text_file(in("text"), 100'000), text);
  EXPECT_EQ(thrown_by([&] { read_text_file(in("text"), 99'999); }).code(), ErrorCode::kBadFile);
  EXPECT_EQ(thrown_by([&] { read_text_file(folder_, 10); }).code(), ErrorCode::kBadFile);
  // An endless device stops at the limit.
  EXPECT_EQ(thrown_by([&] { read_text_file("/dev/zero", 1000); }).code(), ErrorCode::kBadFile);

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "piped", 5), 5);
  ::close(ends[1]);
  EXPECT_EQ(read("/proc/self/fd/" + std::to_string(ends[0])), "piped");
  ::close(ends[0]);
}

TEST_F(Files, AtomicFileAppearsOnlyAtCommit) {
  write_file_atomically(in("out"), std::string_view("old"));
  {
    AtomicFile file(in("out"));
    file.write(std::string_view("new"));
    file.write(std::string_view(" text"));
    EXPECT_EQ(file.written(), 8u);
    EXPECT_EQ(read(in("out")), "old");
    file.commit();
  }
  EXPECT_EQ(read(in("out")), "new text");
  { AtomicFile(in("out")).write(std::string_view("+++")); }
  EXPECT_EQ(read(in("out")), "new text");
  EXPECT_EQ(list_directory(folder_), std::vector<std::string>{"out"});
}

TEST_F(Files, AtomicFileKeepsALinkAndItsFolder) {
  make_directories(in("deep/er"));
  write_file_atomically(in("deep/er/real"), std::string_view("1"));
  ASSERT_EQ(::symlink("deep/er/real", in("link").c_str()), 0);
  write_file_atomically(in("link"), std::string_view("2"));
  EXPECT_EQ(read(in("deep/er/real")), "2");
  struct stat status {};
  ASSERT_EQ(::lstat(in("link").c_str(), &status), 0);
  EXPECT_TRUE(S_ISLNK(status.st_mode));
}

TEST_F(Files, AtomicFileRefusesWhereItCannotWrite) {
  const struct {
    std::string path;
    ErrorCode code;
  } cases[] = {{in("no/such/folder"), ErrorCode::kDevice},
               {folder_, ErrorCode::kUsage},
               {"/dev/null", ErrorCode::kUsage},
               {"/proc/pare-test", ErrorCode::kDevice}};
  for (const auto& c : cases) {
    const Error error = thrown_by([&] { AtomicFile file(c.path); });
    EXPECT_EQ(error.code(), c.code) << c.path;
    EXPECT_NE(std::string(error.what()).find("'" + c.path + "'"), std::string::npos) << error.what();
  }
}

// At every possible size of the disk, the file is the old one or the new one, and nothing else is left.
TEST_F(Files, FullDiskLeavesTheOldFile) {
  const std::string wanted = "0123456789";
  for (std::int64_t space = 0; space <= 12; ++space) {
    set_test_disk_space(-1);
    write_file_atomically(in("out"), std::string_view("old"));
    set_test_disk_space(space);
    if (space < 10) {
      const Error error = thrown_by([&] { write_file_atomically(in("out"), std::string_view(wanted)); });
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_EQ(std::string(error.what()), "cannot write '" + in("out") + "': No space left on device");
      EXPECT_NE(error.hint(), "");
      EXPECT_EQ(read(in("out")), "old");
    } else {
      write_file_atomically(in("out"), std::string_view(wanted));
      EXPECT_EQ(read(in("out")), wanted);
    }
    EXPECT_EQ(list_directory(folder_), std::vector<std::string>{"out"});
  }
}

TEST_F(Files, FullDiskCountsWhatALibraryWrites) {
  for (const bool fits : {false, true}) {
    set_test_disk_space(fits ? 5 : 4);
    AtomicFile file(in("out"));
    const int descriptor = ::open(file.temporary_path().c_str(), O_WRONLY | O_TRUNC);
    ASSERT_EQ(::write(descriptor, "12345", 5), 5);
    ::close(descriptor);
    if (fits) {
      file.commit();
      EXPECT_EQ(read(in("out")), "12345");
    } else {
      EXPECT_EQ(thrown_by([&] { file.commit(); }).code(), ErrorCode::kDevice);
    }
    EXPECT_EQ(path_exists(in("out")), fits);
  }
}

// The variable is read once a process, so another test of this program is run in a process of its own: it
// writes 14 bytes and must fail on a disk that takes 13.
TEST_F(Files, FullDiskFromTheEnvironment) {
  for (const char* space : {"13", "14", "1e3"}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::setenv("PARE_TEST_DISK_FULL_AFTER", space, 1);
      for (const char* shards : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"})
        ::unsetenv(shards);  // the child's one test may be another shard's
      ::close(STDOUT_FILENO);
      ::execl("/proc/self/exe", "base_test", "--gtest_filter=Files.AtomicFileAppearsOnlyAtCommit",
              static_cast<char*>(nullptr));
      ::_exit(99);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), space == std::string("14") ? 0 : 1) << space;
  }
}

TEST_F(Files, JournalGrowsAndSurvivesAFullDisk) {
  {
    AppendFile journal(in("journal"));
    journal.append("one\n");
  }
  AppendFile journal(in("journal"));
  journal.append("two\n");
  set_test_disk_space(2);
  EXPECT_EQ(thrown_by([&] { journal.append("three\n"); }).code(), ErrorCode::kDevice);
  EXPECT_EQ(read(in("journal")), "one\ntwo\nth");  // the record without its newline is the reader's to drop
}

TEST_F(Files, StaleTemporariesAreThoseOfDeadProcesses) {
  const pid_t child = ::fork();
  if (child == 0) {  // killed in the middle of a write
    AtomicFile file(in("out"));
    file.write(std::string_view("half"));
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  AtomicFile ours(in("out"));
  EXPECT_EQ(list_directory(folder_).size(), 2u);
  EXPECT_EQ(remove_stale_temporaries(folder_), 1);
  ours.commit();
  EXPECT_EQ(list_directory(folder_), std::vector<std::string>{"out"});
}

TEST(Paths, OfText) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(parent_path("a/b/c"), "a/b");
  EXPECT_EQ(parent_path("c"), ".");
  EXPECT_EQ(parent_path("/c"), "/");
  EXPECT_EQ(file_name("a/b.tar.gz"), "b.tar.gz");
  EXPECT_EQ(file_stem("a/b.npy"), "b");
  EXPECT_EQ(file_extension("a/B.NPY"), ".npy");
  EXPECT_EQ(file_extension("a.b/c"), "");
}

TEST_F(Files, Folders) {
  make_directories(in("x/y/z"));
  make_directories(in("x/y/z"));
  EXPECT_TRUE(is_directory(in("x/y")));
  write_file_atomically(in("x/file"), std::string_view("12"));
  EXPECT_TRUE(is_regular_file(in("x/file")));
  EXPECT_FALSE(is_regular_file(in("x")));
  EXPECT_FALSE(path_exists(in("x/nothing")));
  EXPECT_EQ(file_size(in("x/file")), 2u);
  EXPECT_EQ(list_directory(in("x")), (std::vector<std::string>{"file", "y"}));
  EXPECT_EQ(canonical_path(in("x/../x/./new/file")), canonical_path(folder_) + "/x/new/file");
  EXPECT_EQ(thrown_by([&] { make_directories(in("x/file/below")); }).code(), ErrorCode::kDevice);
  EXPECT_EQ(thrown_by([&] { make_directories(in("x/file")); }).code(), ErrorCode::kDevice);
  EXPECT_EQ(thrown_by([&] { list_directory(in("nothing")); }).code(), ErrorCode::kBadFile);
  EXPECT_EQ(thrown_by([&] { file_size(in("nothing")); }).code(), ErrorCode::kBadFile);
  remove_file(in("x/file"));
  remove_file(in("x/file"));
  EXPECT_EQ(thrown_by([&] { remove_file(in("x")); }).code(), ErrorCode::kDevice);
  remove_tree(in("x"));
  remove_tree(in("x"));
  EXPECT_FALSE(path_exists(in("x")));
}

}  // namespace
}  // namespace pare
