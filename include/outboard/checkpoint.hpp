// SPDX-License-Identifier: Apache-2.0
/// What Engine::save() and Engine::load() take and give. The files: docs/checkpoint_format.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outboard/export.hpp"
#include "outboard/types.hpp"

namespace outboard {

struct OUTBOARD_API SaveOptions {
  /// The newest checkpoints that stay in the folder, the new one among them; older ones are removed
  /// once it is complete. 0: all stay.
  std::uint32_t keep_last = 1;
  /// A tensor that would make a file longer than this begins another one; larger tensors have a
  /// file of their own. Several files are written and read at a time. At least 1 MiB; as much more
  /// as it takes for at most 512 files, all of which a reader holds open.
  std::uint64_t file_bytes = std::uint64_t{1} << 30;
  /// The trainer's own: any small values by name, such as the place in its data or the state of its
  /// random numbers. Keys are UTF-8, values any bytes; load() gives them back as they were.
  std::map<std::string, std::string> entries{};

  /// @throws Error{invalid_config} naming the field.
  void validate() const;
};

struct OUTBOARD_API SaveReport {
  std::string folder;        ///< of this checkpoint, in the one that was given
  std::uint64_t bytes = 0;   ///< of its files
  std::uint64_t digest = 0;  ///< Engine::state_digest(), which is in it
  std::string warning;       ///< "" or which older one, or rest of a save, could not be removed
};

/// A save that Engine::save_async() has begun. Movable; it may outlive the engine, whose end is the
/// save's. To let go of it is no end of the save: see Engine::save_async() for who is told then if
/// it fails. From one thread at a time.
class OUTBOARD_API SaveTicket {
 public:
  struct State;  ///< the engine's own
  explicit SaveTicket(std::shared_ptr<State> state);
  ~SaveTicket();
  SaveTicket(SaveTicket&&) noexcept;
  SaveTicket& operator=(SaveTicket&&) noexcept;

  /// Whether it has ended, well or not. Does not wait; in virtual time the loop runs in calls that
  /// wait, not in this one.
  [[nodiscard]] bool done() const;
  /// Of the files' bytes, roughly: how many the disk has been given, and all.
  struct Progress {
    std::uint64_t written_bytes = 0, bytes = 0;
  };
  [[nodiscard]] Progress progress() const;
  /// Blocks until it has ended. Any number of times.
  /// @throws the failure, as Engine::save() does: the checkpoints are those of before then.
  SaveReport wait();
  // All three throw Error{invalid_argument} for a ticket that was moved from.

 private:
  [[nodiscard]] State& state() const;
  std::shared_ptr<State> state_;
};

struct OUTBOARD_API LoadOptions {
  /// Everything must fit: a parameter without state in the checkpoint, state without a parameter,
  /// or anything else that keeps the trajectory from going on as it would have, a setting of Config
  /// among it, is an error that lists it. false: what fits is loaded, the rest stays as it is, and
  /// the report and warnings of the log list it.
  bool strict = true;
  /// Reads all files once before the engine is touched, so that a damaged one leaves it as it was;
  /// otherwise each is checked while it is loaded.
  bool verify_first = false;
};

struct OUTBOARD_API LoadReport {
  std::string folder;                          ///< of the checkpoint that was loaded
  std::uint64_t steps = 0;                     ///< calls of step() before it was saved
  std::map<std::string, std::string> entries;  ///< SaveOptions::entries
  // Empty if strict:
  std::vector<std::string> missing;      ///< parameters of the engine that it has no state of
  std::vector<std::string> extra;        ///< parameters in it that the engine has not
  std::vector<std::string> differences;  ///< what was left as the engine has it, one text each
};

/// What is known of a parameter in a checkpoint without reading its state.
struct OUTBOARD_API CheckpointParameter {
  std::string name;
  DType dtype = DType::f16;
  std::uint64_t elems = 0;
  std::uint64_t step_count = 0;
  std::uint32_t group = 0;
  std::map<std::string, std::uint64_t> streams;  ///< checksum of each, by name
};

struct OUTBOARD_API CheckpointInfo {
  std::string folder;
  std::string written_by;
  std::uint64_t bytes = 0;  ///< of the files with state
  std::uint64_t steps = 0;  ///< calls of step()
  std::uint64_t steps_applied = 0, steps_skipped = 0, steps_partial = 0;
  /// What decides on how the run goes on beside its state, by name, as text: the loss scale's
  /// counters, accumulation, and settings of Config, which early checkpoints lack.
  std::map<std::string, std::string> settings;
  std::uint64_t digest = 0;
  double loss_scale = 1.0;
  std::vector<std::string> groups;              ///< one line each, as Engine::describe() has it
  std::vector<CheckpointParameter> parameters;  ///< in registration order
  std::map<std::string, std::string> entries;
};

/// Folders of the complete checkpoints in `folder`, oldest first. @throws Error{io_failure}.
[[nodiscard]] OUTBOARD_API std::vector<std::string> list_checkpoints(const std::string& folder);
/// Of the newest checkpoint in `folder`, or of the one that it is. Reads its manifest and its
/// files' headers, and checks them. Needs no engine and no device.
/// @throws Error{bad_checkpoint}, Error{unsupported}, Error{io_failure} as Engine::load() does.
[[nodiscard]] OUTBOARD_API CheckpointInfo inspect_checkpoint(const std::string& folder);
/// Reads every byte of it. @throws the same.
OUTBOARD_API void verify_checkpoint(const std::string& folder);

/// What two checkpoints do not have alike in the elements of their state.
struct OUTBOARD_API StateComparison {
  struct Difference {
    std::string parameter, stream;
    std::uint64_t element = 0;  ///< in memory order
    float a = 0.0F, b = 0.0F;
  };
  std::optional<Difference> first;     ///< in registration order of the first checkpoint
  std::vector<std::string> tensors;    ///< "stream/parameter" of all that differ, in that order
  std::uint64_t elements = 0;          ///< that differ, of all tensors
  std::vector<std::string> unmatched;  ///< of one checkpoint only, or of another size there
};
/// Compares bit for bit, through buffers of a few MiB, what both have; checksums tell which tensors
/// need be read. @throws as inspect_checkpoint(), naming the damaged one.
[[nodiscard]] OUTBOARD_API StateComparison compare_state(const std::string& a,
                                                         const std::string& b);

}  // namespace outboard
