// SPDX-License-Identifier: Apache-2.0
/// What the larger examples log and print alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "outboard/outboard.hpp"

namespace example {

/// The file that --log names: one JSON object a line.
class StepLog {
 public:
  enum class Begin { anew, behind_what_is_there };
  /// "": logs nothing. @throws UsageError naming the file and why it cannot be written.
  explicit StepLog(const std::string& path, Begin begin = Begin::anew);
  [[nodiscard]] bool is_open() const { return file_.is_open(); }
  /// @throws std::runtime_error naming the file if it cannot take the line.
  void write(const std::string& line);

 private:
  std::string path_;
  std::ofstream file_;
};

/// What every step has. Doubles also as hexadecimal floats, so that two runs can be compared bit by
/// bit.
[[nodiscard]] nlohmann::ordered_json step_json(const outboard::StepResult& result, double loss);

/// Where the held-out loss was measured.
struct HeldOut {
  double model = 0.0;
  const char* unit = "byte";  ///< nats of what
  std::size_t order = 1;      ///< of the counted model beside it
  double counted = 0.0;
};
[[nodiscard]] std::string held_out_line(std::uint64_t step, const HeldOut& held_out);

/// Bytes that crossed the link, for each of `parameters` and `steps`.
[[nodiscard]] std::string link_line(const outboard::StepStats& stats, std::size_t parameters,
                                    std::uint64_t steps);

/// What a model takes on its device, in bytes.
struct ModelMemory {
  std::size_t parameters = 0;
  std::size_t weights = 0, gradients = 0, activations = 0;
  std::size_t all = 0;  ///< with every state and every activation there; 0: not told
  std::string tiles;    ///< what the kernels work in, beside the device
};
/// Where the model and its optimizer live, what is measured of the device, and how the engine runs.
[[nodiscard]] std::string memory_text(const ModelMemory& model, const outboard::Engine& engine,
                                      const outboard::sim::MemoryUse& use);

}  // namespace example
