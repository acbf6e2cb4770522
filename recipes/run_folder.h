// The folder of a run: its lock, its journal, its log. A kill at any moment leaves a folder from which
// `--resume` goes on; two runs never work in one folder.
//
//   lock            held while a process works here (fcntl; gone with the process)
//   journal.jsonl   one record a finished stage, with the SHA-256 of what it left
//   stages/*.json   what the report knew after each stage
//   layers/         finished layers and scores of the stage that runs (layer_journal.h); gone when it is done
//   recipe.yaml     the resolved recipe; report.*, junit.xml, log.txt and the artefacts beside it
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/atomic_file.h"
#include "eval/report.h"

namespace pare {

struct JournalEntry {
  std::string stage;
  double seconds = 0;
  std::vector<ReportArtefact> outputs;
};

// How the error begins when --resume meets a run of another recipe; who knows both says what differs.
extern const char* const kBegunOtherwise;

class RunFolder {
 public:
  enum class Mode { kFresh, kResume, kForce };

  // Makes the folder, takes the lock, reads the journal. `fingerprint` is of everything that decides the
  // result (recipe, model, version); `isa_class` is only compared to warn. Errors, all kUsage: another run
  // works here; the run is finished (--force) or unfinished (--resume) and the mode says otherwise; the
  // folder holds something that is no run; the fingerprint is another one.
  RunFolder(const std::string& path, Mode mode, const std::string& fingerprint, const std::string& isa_class);
  // The same errors but for the lock, and nothing is made. `fingerprint` may be empty: any one.
  static void check(const std::string& path, Mode mode, const std::string& fingerprint);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;
  bool finished() const { return finished_; }
  bool other_isa_class() const { return other_isa_class_; }

  // The stage's record, if its outputs are still there with the same bytes; else nullptr.
  const JournalEntry* find(const std::string& stage) const;
  void record(const JournalEntry& entry);      // hashes are filled in by describe()
  void forget(const std::string& from_stage);  // this record and those after it, and `finished`
  void drop_layers();                          // what layers/ holds
  void finish();

  ReportArtefact describe(const std::string& name) const;  // size and SHA-256 of a file in the folder
  void log(const std::string& line);                       // with the time in front; to log.txt

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  void lock();
  void refuse_foreign(Mode mode) const;
  void refuse_begun(Mode mode) const;
  void start(Mode mode, const std::string& fingerprint, const std::string& isa_class);
  void read_journal(const std::string& fingerprint, const std::string& isa_class);
  void rewrite_journal();
  void wipe();

  std::string path_, header_;
  int lock_ = -1;
  std::vector<JournalEntry> entries_;
  bool finished_ = false, other_isa_class_ = false;
  std::unique_ptr<AppendFile> journal_;
};

}  // namespace pare
