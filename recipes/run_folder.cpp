#include "recipes/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"

namespace pare {
namespace {

// What a run makes. --force removes these and nothing else.
const char* const kOwnFiles[] = {"journal.jsonl",   "recipe.yaml", "statistics.h5", "model.onnx",
                                 "model.onnx.data", "report.json", "report.html",   "report.md",
                                 "junit.xml",       "log.txt",     "model.gguf"};

Json artefact_json(const ReportArtefact& a) {
  return {{"path", a.path}, {"sha256", a.sha256}, {"bytes", a.bytes}};
}

std::string entry_line(const JournalEntry& entry) {
  Json outputs = Json::array();
  for (const ReportArtefact& output : entry.outputs) outputs.push_back(artefact_json(output));
  Json json = {{"stage", entry.stage}, {"seconds", entry.seconds}, {"outputs", outputs}};
  return dump(json) + "\n";
}

const std::string kFinishedLine = "{\"finished\":true}\n";

}  // namespace

const char* const kBegunOtherwise = "the run was begun with another recipe, model or version of pare";

RunFolder::RunFolder(const std::string& path, Mode mode, const std::string& fingerprint,
                     const std::string& isa_class)
    : path_(path) {
  refuse_foreign(mode);
  try {
    make_directories(path_);
  } catch (const Error& error) {
    throw Error(error.code(), error.what()).hint("--out DIR puts the run elsewhere");
  }
  lock();
  try {
    start(mode, fingerprint, isa_class);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

void RunFolder::start(Mode mode, const std::string& fingerprint, const std::string& isa_class) {
  remove_stale_temporaries(path_);
  if (is_directory(file("stages"))) remove_stale_temporaries(file("stages"));
  refuse_foreign(mode);
  header_ = dump({{"run", 1}, {"fingerprint", fingerprint}, {"isa_class", isa_class}}) + "\n";
  if (mode == Mode::kForce) {
    wipe();
  } else if (path_exists(file("journal.jsonl"))) {
    read_journal(mode == Mode::kResume ? fingerprint : "", isa_class);
    refuse_begun(mode);
  }
  make_directories(file("stages"));
  rewrite_journal();
}

void RunFolder::refuse_foreign(Mode mode) const {
  if (mode == Mode::kForce || !is_directory(path_) || path_exists(file("journal.jsonl"))) return;
  for (const std::string& name : list_directory(path_))
    if (name != "lock" && name != "stages" && name != "layers" && name != "recipe.yaml" && name != "log.txt")
      throw make_error(ErrorCode::kUsage, "the folder holds '{}' but no run", name)
          .at(path_)
          .hint("choose another folder with --out, or --force");
}

void RunFolder::refuse_begun(Mode mode) const {
  // A run that finished no stage left nothing to go on with: it may begin again.
  if (mode != Mode::kFresh || (!finished_ && entries_.empty())) return;
  throw make_error(ErrorCode::kUsage, "there is {} run in the folder",
                   finished_ ? "a finished" : "an unfinished")
      .at(path_)
      .hint(finished_ ? "--force runs it again, --out chooses another folder"
                      : "--resume goes on with it, --force starts again");
}

void RunFolder::check(const std::string& path, Mode mode, const std::string& fingerprint) {
  RunFolder folder(path);
  folder.refuse_foreign(mode);
  if (mode == Mode::kForce || !path_exists(folder.file("journal.jsonl"))) return;
  folder.read_journal(mode == Mode::kResume ? fingerprint : "", "");
  folder.refuse_begun(mode);
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string RunFolder::file(const std::string& name) const { return join_path(path_, name); }

void RunFolder::lock() {
  const std::string name = file("lock");
  lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw make_error(ErrorCode::kDevice, "cannot open '{}': {}", name, std::strerror(errno))
        .hint("give another folder with --out");
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(lock_, F_SETLK, &lock) == 0) return;
  const int reason = errno;
  ::close(lock_);
  lock_ = -1;
  if (reason != EACCES && reason != EAGAIN)
    throw make_error(ErrorCode::kDevice, "cannot lock '{}': {}", name, std::strerror(reason))
        .hint("look at owner and permissions of the folder, or give another --out");
  throw make_error(ErrorCode::kUsage, "another run works in this folder")
      .at(path_)
      .hint("wait for it, or choose another folder with --out");
}

void RunFolder::read_journal(const std::string& fingerprint, const std::string& isa_class) {
  const std::string name = file("journal.jsonl");
  const std::string text = read_text_file(name, limits::kMaxJournalBytes);
  bool first = true, other_fingerprint = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // cut short by a kill: it never happened
    const Json record = parse_json(std::string_view(text).substr(begin, end - begin), name);
    begin = end + 1;
    if (first) {
      first = false;
      other_fingerprint = !fingerprint.empty() && json_string(record, "fingerprint", name) != fingerprint;
      other_isa_class_ = json_string(record, "isa_class", name) != isa_class;
      continue;
    }
    if (record.contains("finished")) {
      finished_ = true;
      continue;
    }
    JournalEntry entry;
    entry.stage = json_string(record, "stage", name);
    entry.seconds = json_double(record, "seconds", name);
    for (const Json& output : json_array(record, "outputs", name))
      entry.outputs.push_back({json_string(output, "path", name), json_string(output, "sha256", name),
                               json_int(output, "bytes", name)});
    entries_.push_back(std::move(entry));
  }
  if (other_fingerprint && (finished_ || !entries_.empty()))
    throw make_error(ErrorCode::kUsage, "{}", kBegunOtherwise)
        .at(path_)
        .hint("its recipe is recipe.yaml there; --force starts again with this one");
}

void RunFolder::rewrite_journal() {
  journal_.reset();
  std::string text = header_;
  for (const JournalEntry& entry : entries_) text += entry_line(entry);
  if (finished_) text += kFinishedLine;
  write_file_atomically(file("journal.jsonl"), text);
  journal_ = std::make_unique<AppendFile>(file("journal.jsonl"));
}

void RunFolder::wipe() {
  for (const char* name : kOwnFiles) remove_file(file(name));
  remove_tree(file("checkpoint"));
  remove_tree(file("stages"));
  drop_layers();
}

void RunFolder::drop_layers() { remove_tree(file("layers")); }

const JournalEntry* RunFolder::find(const std::string& stage) const {
  for (const JournalEntry& entry : entries_) {
    if (entry.stage != stage) continue;
    for (const ReportArtefact& output : entry.outputs)
      if (!path_exists(file(output.path)) || sha256_of_file(file(output.path)) != output.sha256)
        return nullptr;
    return &entry;
  }
  return nullptr;
}

void RunFolder::record(const JournalEntry& entry) {
  entries_.push_back(entry);
  journal_->append(entry_line(entry));
}

void RunFolder::forget(const std::string& from_stage) {
  std::size_t keep = 0;
  while (keep < entries_.size() && entries_[keep].stage != from_stage) ++keep;
  if (keep == entries_.size() && !finished_) return;
  entries_.resize(keep);
  finished_ = false;
  rewrite_journal();
}

void RunFolder::finish() {
  if (finished_) return;
  finished_ = true;
  journal_->append(kFinishedLine);
}

ReportArtefact RunFolder::describe(const std::string& name) const {
  return {name, sha256_of_file(file(name)), static_cast<std::int64_t>(file_size(file(name)))};
}

void RunFolder::log(const std::string& line) {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &parts);
  AppendFile(file("log.txt")).append(fmt::format("{} {}\n", time, line));
}

}  // namespace pare
