// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoints.hpp"

#include <algorithm>
#include <thread>

#include "ckpt/reader.hpp"
#include "ckpt/writer.hpp"
#include "core/on_threads.hpp"
#include "optim/state_layout.hpp"
#include "outboard/error.hpp"
#include "outboard/version.hpp"

namespace outboard::engine {
namespace {

/// Beyond these more threads wait for the medium, or for memory.
constexpr std::uint32_t kMostThreads = 4;

std::uint32_t threads_for(pipeline::Pipeline& pipeline) {
  if (!pipeline.state_on_host()) return 1;
  return std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
}

ckpt::Manifest manifest_of(const Model& model, pipeline::Pipeline& pipeline) {
  const pipeline::SavedScalars scalars = pipeline.saved_scalars();
  ckpt::Manifest manifest;
  manifest.written_by = std::string("outboard ") + kVersion;
  manifest.counters = {scalars.steps, scalars.applied, scalars.skipped, scalars.partial};
  manifest.accumulation = pipeline.accumulation();
  manifest.dynamic_loss_scale = model.loss_scaling.dynamic;
  manifest.loss_scale = scalars.loss_scale;
  manifest.settings = settings_of(model);
  manifest.groups.assign(model.groups.begin(), model.groups.end());
  for (std::uint32_t i = 0; i < model.parameters.size(); ++i) {
    const ModelParameter& parameter = model.parameters[i];
    ckpt::ParameterEntry& entry = manifest.parameters.emplace_back();
    entry.names = parameter.names;
    entry.dtype = parameter.dtype;
    entry.elems = parameter.elems;
    entry.group = parameter.group;
    entry.step_count = pipeline.step_count(ParameterId{i});
    for (const auto name : optim::stream_names(model.groups[parameter.group])) {
      entry.streams.push_back({std::string(name), 0, 0});
    }
  }
  return manifest;
}

class PipelineSource final : public ckpt::StateSource {
 public:
  explicit PipelineSource(pipeline::Pipeline& pipeline) : pipeline_(pipeline) {}
  void read(std::size_t parameter, std::size_t stream, Sink sink) override {
    pipeline_.read_pieces(ParameterId{static_cast<std::uint32_t>(parameter)}, stream, sink);
  }

 private:
  pipeline::Pipeline& pipeline_;
};

void fill_with(std::span<std::byte> bytes, float value) {
  const std::span<float> elems{reinterpret_cast<float*>(bytes.data()),
                               bytes.size() / sizeof(float)};
  std::ranges::fill(elems, value);
}

void load_parameter(const ckpt::Checkpoint& checkpoint, const ParameterMatch& match,
                    pipeline::Pipeline& pipeline, ParameterId id) {
  for (std::size_t i = 0; i < match.streams.size(); ++i) {
    const StreamOrigin& origin = match.streams[i];
    if (!origin.stream) {
      pipeline.write_pieces(id, i,
                            [&](std::span<std::byte> piece) { fill_with(piece, origin.constant); });
      continue;
    }
    auto stream = checkpoint.stream(match.entry, *origin.stream);
    pipeline.write_pieces(id, i, [&](std::span<std::byte> piece) { stream.read(piece); });
    stream.finish();
  }
}

void load_streams(const ckpt::Checkpoint& checkpoint, const Match& match,
                  pipeline::Pipeline& pipeline) {
  core::on_threads(threads_for(pipeline), match.parameters.size(), [&](std::size_t i) {
    if (!match.parameters[i]) return;
    load_parameter(checkpoint, *match.parameters[i], pipeline,
                   ParameterId{static_cast<std::uint32_t>(i)});
  });
}

pipeline::RestoredState restored(const ckpt::Manifest& manifest, const Match& match,
                                 pipeline::Pipeline& pipeline) {
  pipeline::RestoredState state;
  for (const auto& found : match.parameters) {
    auto& count = state.step_counts.emplace_back();
    if (found) count = found->begins_anew ? 0 : manifest.parameters[found->entry].step_count;
  }
  state.scalars = {match.loss_scale ? manifest.loss_scale : pipeline.saved_scalars().loss_scale,
                   manifest.counters.steps, manifest.counters.applied, manifest.counters.skipped,
                   manifest.counters.partial};
  return state;
}

/// Everything that changes the engine.
void load_into(const ckpt::Checkpoint& checkpoint, const Match& match,
               std::span<optim::Group> groups, pipeline::Pipeline& pipeline) {
  load_streams(checkpoint, match, pipeline);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (match.rules[i]) groups[i].rule = *match.rules[i];
  }
  pipeline.finish_load(restored(checkpoint.manifest(), match, pipeline), groups);
  if (!match.same_model) return;
  if (pipeline.state_digest() == checkpoint.manifest().digest) return;
  throw Error(ErrorCode::bad_checkpoint,
              "load(): '" + checkpoint.folder() +
                  "' was loaded, and its state has another digest than when it was saved: its "
                  "manifest is damaged, or this machine is; load another checkpoint");
}

}  // namespace

ckpt::SaveRequest request_of(const Model& model, pipeline::Pipeline& pipeline,
                             const SaveOptions& options) {
  options.validate();
  ckpt::SaveRequest request{manifest_of(model, pipeline), options.keep_last, options.file_bytes,
                            threads_for(pipeline)};
  request.manifest.entries = options.entries;
  return request;
}

std::uint64_t checkpoint_bytes(const Model& model, pipeline::Pipeline& pipeline,
                               const SaveOptions& options) {
  return ckpt::planned_bytes(request_of(model, pipeline, options));
}

void check_save(ckpt::FileSystem& files, const std::string& folder, const Model& model,
                pipeline::Pipeline& pipeline, const SaveOptions& options) {
  ckpt::require_space(files, folder, request_of(model, pipeline, options));
}

SaveReport save(ckpt::FileSystem& files, const std::string& folder, const Model& model,
                pipeline::Pipeline& pipeline, const SaveOptions& options) {
  options.validate();
  pipeline.prepare_state_access("save()");
  ckpt::SaveRequest request = request_of(model, pipeline, options);
  request.manifest.digest = pipeline.state_digest();
  const std::uint64_t digest = request.manifest.digest;
  PipelineSource source(pipeline);
  const ckpt::SavedCheckpoint saved = ckpt::save(files, folder, std::move(request), source);
  return {saved.folder, saved.bytes, digest, saved.note};
}

LoadReport load(ckpt::FileSystem& files, const std::string& folder, const LoadTarget& target,
                const LoadOptions& options) {
  const ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(files, folder);
  const Match found = match(target.model, checkpoint.manifest());
  if (options.strict) require_all(found, checkpoint.folder());
  if (options.verify_first) checkpoint.verify();
  pipeline::Pipeline& pipeline = target.prepare(found.missing.empty());
  try {
    load_into(checkpoint, found, target.groups, pipeline);
  } catch (const Error& failure) {
    pipeline.poison(failure);
    throw;
  } catch (const std::exception& failure) {
    pipeline.poison(Error(ErrorCode::out_of_memory, std::string("load(): ") + failure.what()));
    throw;
  }
  const ckpt::Manifest& manifest = checkpoint.manifest();
  return {checkpoint.folder(), manifest.counters.steps, manifest.entries, found.missing,
          found.extra,         found.differences};
}

std::vector<std::string> misfits(const LoadReport& report) {
  std::vector<std::string> lines;
  for (const auto& name : report.missing) {
    lines.push_back("load(): it has no state of parameter '" + name + "'");
  }
  for (const auto& name : report.extra) {
    lines.push_back("load(): it has state of '" + name + "', which is no parameter here");
  }
  for (const auto& difference : report.differences) lines.push_back("load(): " + difference);
  return lines;
}

}  // namespace outboard::engine
