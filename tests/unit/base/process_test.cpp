// What concerns the process as a whole: hashes of its data, memory, cancellation, progress.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/base/atomic_file.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "engine/base/progress.h"
#include "engine/base/sha256.h"

namespace pare {
namespace {

// FIPS 180-4 example values (NIST, "SHA256.pdf") and the well-known digest of the empty message.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesAndReuse) {
  Sha256 hash;
  hash.update("a");
  hash.update("");
  hash.update("bc");
  EXPECT_EQ(hash.finish(), sha256("abc"));
  hash.update("abc");
  EXPECT_EQ(hash.finish(), sha256("abc"));
  hash.update_number(0x0102030405060708u);
  EXPECT_EQ(hash.finish(), sha256(std::string_view("\x08\x07\x06\x05\x04\x03\x02\x01", 8)));
}

TEST(Sha256, OfAFile) {
  const std::string folder = make_temporary_directory();
  write_file_atomically(join_path(folder, "a"), std::string_view("abc"));
  EXPECT_EQ(sha256_of_file(join_path(folder, "a")), hex(sha256("abc")));
  EXPECT_THROW(sha256_of_file(join_path(folder, "b")), Error);
  remove_tree(folder);
}

TEST(Sha256, HexBothWays) {
  const Digest digest = sha256("x");
  EXPECT_EQ(digest_from_hex(hex(digest)), digest);
  std::string upper = hex(digest);
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(digest_from_hex(upper), digest);
  for (const std::string& bad :
       {std::string(), std::string(63, '0'), std::string(65, '0'), std::string(64, 'g')})
    EXPECT_THROW(digest_from_hex(bad), Error) << bad;
}

TEST(DigestSum, CarriesAndWraps) {
  Digest ones;
  ones.fill(0xFF);
  Digest one{};
  one[31] = 1;
  DigestSum sum;
  EXPECT_EQ(sum.hex(), std::string(64, '0'));
  sum.add(ones);
  sum.add(one);
  EXPECT_EQ(sum.hex(), std::string(64, '0'));  // 2^256 - 1 + 1
  sum.add(one);
  sum.add(ones);
  sum.add(ones);
  EXPECT_EQ(sum.hex(), std::string(63, 'f') + "f");  // 1 - 1 - 1
  EXPECT_EQ(DigestSum::from_hex(sum.hex()), sum);
}

TEST(DigestSum, AnyOrderAnyPartition) {
  std::vector<Digest> digests;
  for (int i = 0; i < 100; ++i) digests.push_back(sha256("sample " + std::to_string(i)));
  DigestSum whole;
  for (const Digest& digest : digests) whole.add(digest);
  std::mt19937 random(1);
  std::shuffle(digests.begin(), digests.end(), random);
  DigestSum parts[3];
  for (std::size_t i = 0; i < digests.size(); ++i) parts[i < 7 ? 0 : i % 2 + 1].add(digests[i]);
  parts[2].add(parts[0]);
  parts[2].add(parts[1]);
  EXPECT_EQ(parts[2], whole);
  whole.add(digests[0]);
  EXPECT_NE(parts[2], whole);  // a sample twice is seen, as it would not be with exclusive or
}

TEST(Memory, AnonymousPeakStays) {
  constexpr std::int64_t kSize = 64 << 20;
  const std::int64_t before = current_anonymous_bytes();
  ASSERT_GT(before, 0);
  void* memory =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::int64_t during = current_anonymous_bytes();
  ::munmap(memory, kSize);
  const std::int64_t after = current_anonymous_bytes();
  EXPECT_GE(during - before, kSize * 9 / 10);
  EXPECT_LE(after - before, kSize / 10);
  EXPECT_GE(peak_anonymous_bytes(), during);
  EXPECT_GE(peak_rss_bytes(), during);
  EXPECT_GT(total_memory_bytes(), kSize);
}

TEST(Memory, SamplerSeesAPeakBetweenCalls) {
  start_memory_sampling();
  start_memory_sampling();
  const std::int64_t size = peak_anonymous_bytes() + (32 << 20);  // higher than anything so far
  void* memory = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::usleep(500'000);
  ::munmap(memory, static_cast<std::size_t>(size));
  EXPECT_GE(peak_anonymous_bytes(), size);
}

TEST(Cancel, ASignalIsAnErrorAtTheNextCheck) {
  check_cancelled();
  install_cancel_signals();
  ASSERT_EQ(::raise(SIGTERM), 0);
  EXPECT_TRUE(cancel_requested());
  try {
    check_cancelled();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  clear_cancel();
  check_cancelled();
  EXPECT_EXIT(::raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");  // the second one is final
  ::signal(SIGINT, SIG_DFL);
}

TEST(Progress, AStepEndsWithItsScope) {
  struct Recorder : Progress {
    void begin(const std::string& what, std::int64_t total) override { log += what + std::to_string(total); }
    void advance(std::int64_t count) override { log += "+" + std::to_string(count); }
    void end() override { log += "."; }
    std::string log;
  } recorder;
  try {
    ProgressStep step(recorder, "images", 10);
    step.advance(4);
    step.advance(6);
    fail(ErrorCode::kBadFile, "x");
  } catch (const Error&) {
  }
  EXPECT_EQ(recorder.log, "images10+4+6.");
  ProgressStep(no_progress(), "nothing", 0).advance(1);
}

}  // namespace
}  // namespace pare
