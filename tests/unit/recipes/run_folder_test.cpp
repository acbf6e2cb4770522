// The journal of a run: what survives a kill, what is refused, and what a changed file does to a record.
#include "recipes/run_folder.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "recipes/stages.h"

namespace pare {
namespace {

using Mode = RunFolder::Mode;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = make_temporary_directory(); }
  void TearDown() override { remove_tree(folder_); }

  std::string run() const { return join_path(folder_, "run"); }
  RunFolder open(Mode mode, const std::string& fingerprint = "f") const {
    return RunFolder(run(), mode, fingerprint, "avx2");
  }
  static void finish_stage(RunFolder& folder, const std::string& stage) {
    write_file_atomically(folder.file("stages/" + stage + ".json"), std::string_view("{}"));
    JournalEntry entry;
    entry.stage = stage;
    entry.outputs.push_back(folder.describe("stages/" + stage + ".json"));
    folder.record(entry);
  }
  // The code and hint of the error that opening gives.
  std::string refusal(Mode mode, const std::string& fingerprint = "f") const {
    try {
      open(mode, fingerprint);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return std::string(error.what()) + "; " + error.hint();
    }
    return "";
  }

  std::string folder_;
};

TEST_F(RunFolderTest, FreshUnfinishedFinished) {
  {
    RunFolder folder = open(Mode::kFresh);
    EXPECT_EQ(folder.find("load"), nullptr);
  }
  EXPECT_EQ(refusal(Mode::kFresh), "") << "nothing was finished: it may begin again";
  {
    RunFolder folder = open(Mode::kFresh);
    finish_stage(folder, "load");
  }
  EXPECT_NE(refusal(Mode::kFresh).find("--resume goes on"), std::string::npos);
  EXPECT_NE(refusal(Mode::kResume, "other").find("another recipe"), std::string::npos);
  {
    RunFolder folder = open(Mode::kResume);
    EXPECT_NE(folder.find("load"), nullptr);
    folder.finish();
    folder.finish();
  }
  EXPECT_NE(refusal(Mode::kFresh).find("--force runs it again"), std::string::npos);
  {
    RunFolder folder = open(Mode::kResume);
    EXPECT_TRUE(folder.finished());
    folder.forget("load");
    EXPECT_FALSE(folder.finished());
  }
  RunFolder folder = open(Mode::kForce, "other");
  EXPECT_EQ(folder.find("load"), nullptr);
  EXPECT_FALSE(path_exists(folder.file("stages/load.json")));
}

TEST_F(RunFolderTest, ARecordCutShortNeverHappened) {
  {
    RunFolder folder = open(Mode::kFresh);
    finish_stage(folder, "load");
    finish_stage(folder, "calibrate");
  }
  const std::string journal = join_path(run(), "journal.jsonl");
  const std::string text = read_text_file(journal, 1 << 20);
  const std::size_t second = text.rfind("{\"stage\"");
  for (const std::size_t size : {text.size() - 1, second + 3, second}) {
    write_file_atomically(journal, std::string_view(text).substr(0, size));
    RunFolder folder = open(Mode::kResume);
    EXPECT_NE(folder.find("load"), nullptr);
    EXPECT_EQ(folder.find("calibrate"), nullptr);
    finish_stage(folder, "calibrate");
    EXPECT_NE(folder.find("calibrate"), nullptr);
  }
  RunFolder folder = open(Mode::kResume);
  EXPECT_NE(folder.find("calibrate"), nullptr) << "the journal was mended, not appended to half a line";
}

TEST_F(RunFolderTest, AChangedOutputVoidsItsRecord) {
  RunFolder folder = open(Mode::kFresh);
  finish_stage(folder, "load");
  write_file_atomically(folder.file("stages/load.json"), std::string_view("{ }"));
  EXPECT_EQ(folder.find("load"), nullptr);
  remove_file(folder.file("stages/load.json"));
  EXPECT_EQ(folder.find("load"), nullptr);
}

TEST_F(RunFolderTest, ForeignFilesAreLeftAlone) {
  make_directories(run());
  write_file_atomically(join_path(run(), "thesis.tex"), std::string_view("x"));
  EXPECT_NE(refusal(Mode::kFresh).find("holds 'thesis.tex' but no run"), std::string::npos);
  { open(Mode::kForce); }
  EXPECT_TRUE(path_exists(join_path(run(), "thesis.tex")));
}

struct Split {
  std::int64_t available, samples, holdout;
  std::int64_t calibrated, begin, end;
};

TEST(SplitCalibration, HoldsOutWhatStatisticsNeverSee) {
  const Split cases[] = {
      {768, 512, 256, 512, 512, 768},    // enough behind the first 512
      {600, 512, 256, 512, 512, 600},    // some
      {512, 512, 256, 384, 384, 512},    // none: the last quarter
      {520, 512, 256, 390, 390, 520},    // too few to count
      {512, 0, 256, 384, 384, 512},      // all were asked for
      {2000, 0, 256, 1744, 1744, 2000},  // a quarter would be more than wanted
      {3, 512, 256, 3, 3, 3},            // nothing to spare
      {1, 1, 256, 1, 1, 1},
  };
  for (const Split& c : cases) {
    const CalibrationSplit split = split_calibration(c.available, c.samples, c.holdout);
    EXPECT_EQ(split.samples, c.calibrated) << c.available;
    EXPECT_EQ(split.holdout.begin, c.begin) << c.available;
    EXPECT_EQ(split.holdout.end, c.end) << c.available;
    EXPECT_LE(split.samples, split.holdout.begin) << "no sample is both";
    EXPECT_LE(split.holdout.end, c.available);
  }
}

}  // namespace
}  // namespace pare
