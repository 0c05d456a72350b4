/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The C interface: C99, opaque handles, no exception and no abort crosses it.
 *
 * A trainer needs nine calls (outboard_device_open, outboard_engine_create, outboard_add_group,
 * outboard_add_parameter, outboard_commit, outboard_wait, outboard_gradient_ready, outboard_step,
 * outboard_engine_destroy); examples/04_flat_buffers is one.
 *
 * Conventions
 * - Every call that can fail returns an outboard_status. OUTBOARD_OK is 0. After any other value
 *   outboard_last_error() has the text: what, which, how much, what to do. What a call gives back
 *   through a pointer is written on success only.
 * - A struct that the caller fills begins with `struct_size`; outboard_..._init() sets it and the
 *   defaults. A struct of an older header stays valid: what it lacks keeps its default.
 * - Strings are UTF-8, end with a 0, and are copied. Pointers to weights, gradients and masters are
 *   borrowed as the call says.
 * - A device and an engine may be used from several threads where the comment on `engine.hpp`
 *   allows it. Setting up, outboard_step() and all calls of "between steps" exclude all other calls
 *   of the same engine; a call that comes at the same time as such a one is refused with
 *   OUTBOARD_PROTOCOL_ERROR, not carried out.
 * - A handle that was destroyed is refused with OUTBOARD_INVALID_ARGUMENT.
 */
#ifndef OUTBOARD_OUTBOARD_H
#define OUTBOARD_OUTBOARD_H

/* NOLINTBEGIN(modernize-*): this is C */
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define OUTBOARD_C_API __attribute__((visibility("default")))
#else
#define OUTBOARD_C_API
#endif

/* In C any int can be an enumerator's; in C++ only where it is said. */
#ifdef __cplusplus
#define OUTBOARD_ENUM(name) enum name : int
extern "C" {
#else
#define OUTBOARD_ENUM(name) enum name
#endif

typedef OUTBOARD_ENUM(outboard_status) {
  OUTBOARD_OK = 0,
  OUTBOARD_INVALID_ARGUMENT = 1, /**< a value that can never be right */
  OUTBOARD_INVALID_CONFIG = 2,   /**< settings that contradict each other or the machine */
  OUTBOARD_PROTOCOL_ERROR = 3,   /**< a call at the wrong time */
  OUTBOARD_UNSUPPORTED = 4,      /**< legal, but not what this build or release does */
  OUTBOARD_OUT_OF_MEMORY = 5,
  OUTBOARD_DEVICE_FAILURE = 6,
  OUTBOARD_DEADLOCK = 7, /**< virtual time only */
  OUTBOARD_POISONED = 8, /**< an earlier failure left the state half new: load or destroy */
  OUTBOARD_NUMERICS = 9, /**< the loss scale gave up */
  OUTBOARD_TIMEOUT = 10,
  OUTBOARD_IO_FAILURE = 11,
  OUTBOARD_NO_SPACE = 12,
  OUTBOARD_BAD_CHECKPOINT = 13,
  OUTBOARD_INTERNAL = 14 /**< an exception of no known type */
} outboard_status;

typedef OUTBOARD_ENUM(outboard_dtype) {
  OUTBOARD_F16 = 0,
  OUTBOARD_BF16 = 1,
  OUTBOARD_F32 = 2
} outboard_dtype;

typedef OUTBOARD_ENUM(outboard_rule) {
  OUTBOARD_ADAMW = 0,
  OUTBOARD_ADAM = 1,
  OUTBOARD_SGD = 2,
  OUTBOARD_LION = 3,
  OUTBOARD_ADAGRAD = 4,
  OUTBOARD_LAMB = 5
} outboard_rule;

typedef OUTBOARD_ENUM(outboard_rounding) {
  OUTBOARD_ROUND_NEAREST = 0,
  OUTBOARD_ROUND_STOCHASTIC = 1
} outboard_rounding;

typedef OUTBOARD_ENUM(outboard_schedule) {
  OUTBOARD_SCHEDULE_EXACT = 0,
  OUTBOARD_SCHEDULE_BLOCKING = 1,
  OUTBOARD_SCHEDULE_OPEN = 2,
  OUTBOARD_SCHEDULE_SERIAL = 3
} outboard_schedule;

typedef OUTBOARD_ENUM(outboard_accumulate) {
  OUTBOARD_ACCUMULATE_TRAINER = 0,
  OUTBOARD_ACCUMULATE_HOST = 1
} outboard_accumulate;

typedef OUTBOARD_ENUM(outboard_placement) {
  OUTBOARD_PLACEMENT_HOST = 0,
  OUTBOARD_PLACEMENT_DEVICE_RESIDENT = 1,
  OUTBOARD_PLACEMENT_FRACTION = 2,
  OUTBOARD_PLACEMENT_AUTOMATIC = 3,
  OUTBOARD_PLACEMENT_DEVICE_STREAMED = 4
} outboard_placement;

typedef OUTBOARD_ENUM(outboard_log_level) {
  OUTBOARD_LOG_INFO = 0,
  OUTBOARD_LOG_WARNING = 1,
  OUTBOARD_LOG_ERROR = 2
} outboard_log_level;

typedef OUTBOARD_ENUM(outboard_outcome) {
  OUTBOARD_APPLIED = 0,
  OUTBOARD_SKIPPED = 1, /**< overflow: nothing has changed */
  OUTBOARD_EMPTY = 2,   /**< no parameter had a gradient */
  OUTBOARD_PARTIAL = 3  /**< OUTBOARD_SCHEDULE_OPEN: some parameters were left out */
} outboard_outcome;

typedef struct outboard_device outboard_device;
typedef struct outboard_engine outboard_engine;
/** A stream as the device's runtime numbers it: a cudaStream_t cast to an integer; 0 on the host
 *  device is the calling thread. */
typedef uint64_t outboard_stream;

/** One line without a newline, from the thread of the call that it is about. */
typedef void (*outboard_log_function)(void *user, outboard_log_level level, const char *text);

typedef struct outboard_config {
  size_t struct_size;
  double max_grad_norm;            /**< 0: no clipping */
  uint32_t accumulation;           /**< micro-batches of a step */
  outboard_accumulate accumulate;  /**< who adds up the gradients of a step's micro-batches */
  outboard_schedule schedule;
  outboard_placement placement;
  double device_fraction;          /**< OUTBOARD_PLACEMENT_FRACTION */
  uint64_t device_budget_bytes;    /**< of optimizer state on the device; default: what is free */
  uint64_t bucket_bytes;           /**< of gradients */
  uint32_t pinned_slots;           /**< 0: one for each bucket */
  int check_waits;                 /**< fills stale weights with NaN */
  /* Loss scale. A trainer that scales by itself: not dynamic, 1, outboard_set_gradient_divisor(). */
  int dynamic_loss_scale;
  double initial_loss_scale;
  uint32_t growth_interval;
  /* The host. */
  uint32_t threads_per_node; /**< 0: the physical cores allowed */
  int32_t reserve_cores;     /**< cores left to the trainer; below 0: the default */
  outboard_log_function log; /**< null: silent */
  void *log_user;
} outboard_config;

/** Hyper-parameters of a group. What a rule has not is ignored. */
typedef struct outboard_group {
  size_t struct_size;
  outboard_rule rule;
  double lr;
  double beta1, beta2; /**< AdamW, Adam, LAMB, Lion */
  double eps;          /**< AdamW, Adam, LAMB, Adagrad */
  double weight_decay;
  double momentum, dampening; /**< SGD */
  int nesterov;
  double lr_decay, initial_accumulator; /**< Adagrad */
  /* Fixed when the group is made: */
  outboard_rounding rounding;
  uint64_t seed;    /**< of stochastic rounding */
  double ema_decay; /**< of the average of the weights; below 0: none */
} outboard_group;

typedef struct outboard_parameter {
  size_t struct_size;
  const char *name; /**< unique within the engine */
  outboard_dtype dtype;
  uint64_t elems;
  void *data; /**< device memory, aligned to its element; borrowed until the engine's end */
  uint32_t group;
  const float *master; /**< `elems` FP32 weights, read by outboard_commit(); null: as `data` */
} outboard_parameter;

typedef struct outboard_step_result {
  size_t struct_size; /**< set by the caller */
  outboard_outcome outcome;
  uint64_t step;
  double grad_norm; /**< unscaled, before clipping */
  double clip;
  double loss_scale, next_loss_scale;
  /* The first gradient element that is not finite; `non_finite_count` is 0 if there is none. */
  uint32_t non_finite_parameter;
  uint64_t non_finite_element;
  uint64_t non_finite_count; /**< in that parameter */
} outboard_step_result;

typedef struct outboard_stats {
  size_t struct_size; /**< set by the caller */
  uint64_t steps_applied, steps_skipped;
  uint64_t gradient_bytes_down, weight_bytes_up;
  uint64_t state_bytes_up, state_bytes_down;
  uint64_t weight_overflows;
  double gate_wait_us, drain_wait_us, finish_wait_us, refresh_wait_us, update_busy_us;
  uint64_t host_bytes, device_bytes; /**< held by the engine */
} outboard_stats;

/* --- about the library ----------------------------------------------------------------------- */

/** "1.2.3" */
OUTBOARD_C_API const char *outboard_version(void);
/** Of this thread's last call that failed; "" if there was none. Valid until its next call. */
OUTBOARD_C_API const char *outboard_last_error(void);
/** "invalid_argument", ...; never null. */
OUTBOARD_C_API const char *outboard_status_name(outboard_status status);

/* --- set-up ---------------------------------------------------------------------------------- */

/** `what`: "host" (weights and gradients in ordinary memory of the process), "cuda:N" (NVIDIA's GPU
 *  of that number among those this process may see; "cuda" is 0) or "sim" (the software GPU, 64 MiB;
 *  for tests). Engines keep the device alive: it may be closed before they end. */
OUTBOARD_C_API outboard_status outboard_device_open(const char *what, outboard_device **out);
/** Null is legal. */
OUTBOARD_C_API outboard_status outboard_device_close(outboard_device *device);

OUTBOARD_C_API void outboard_config_init(outboard_config *config);
OUTBOARD_C_API void outboard_group_init(outboard_group *group, outboard_rule rule);
OUTBOARD_C_API void outboard_parameter_init(outboard_parameter *parameter);

/** `config` may be null: all defaults. */
OUTBOARD_C_API outboard_status outboard_engine_create(outboard_device *device,
                                                      const outboard_config *config,
                                                      outboard_engine **out);
/** Waits for all work in flight. Null is legal. */
OUTBOARD_C_API outboard_status outboard_engine_destroy(outboard_engine *engine);
OUTBOARD_C_API outboard_status outboard_add_group(outboard_engine *engine,
                                                  const outboard_group *group, uint32_t *id);
/** In order of first use in the forward pass. The same weight again gives the first id back. */
OUTBOARD_C_API outboard_status outboard_add_parameter(outboard_engine *engine,
                                                      const outboard_parameter *parameter,
                                                      uint32_t *id);
/** Allocates, binds and pins all memory, reads the initial weights. Blocks. Called again it takes
 *  in what has been added since. */
OUTBOARD_C_API outboard_status outboard_commit(outboard_engine *engine);

/* --- each step ------------------------------------------------------------------------------- */

/** New hyper-parameters from the next outboard_step() on; the rule stays what it is. */
OUTBOARD_C_API outboard_status outboard_set_group(outboard_engine *engine, uint32_t group,
                                                  const outboard_group *settings);
/** `stream` waits for the refreshed weight (host device, stream 0: the caller does). */
OUTBOARD_C_API outboard_status outboard_wait(outboard_engine *engine, uint32_t parameter,
                                             outboard_stream stream);
/** The gradient, times the loss scale, is complete at this point of `stream`. Does not wait. */
OUTBOARD_C_API outboard_status outboard_gradient_ready(outboard_engine *engine, uint32_t parameter,
                                                       const void *gradient,
                                                       outboard_stream stream);
/** Work queued on `stream` from now on may overwrite the gradient given last. */
OUTBOARD_C_API outboard_status outboard_wait_gradient_taken(outboard_engine *engine,
                                                            uint32_t parameter,
                                                            outboard_stream stream);
/** Norm, clip or skip; starts the updates. `result` may be null. */
OUTBOARD_C_API outboard_status outboard_step(outboard_engine *engine,
                                             outboard_step_result *result);
/** Drops the gradients given since the last step: for a trainer that skips by itself. */
OUTBOARD_C_API outboard_status outboard_discard(outboard_engine *engine);
OUTBOARD_C_API outboard_status outboard_loss_scale(outboard_engine *engine, double *out);
/** What the gradients of the coming steps were multiplied by beside the loss scale, to be said
 *  before outboard_step(); 1 at first. A trainer that clips divides it by its factor. */
OUTBOARD_C_API outboard_status outboard_set_gradient_divisor(outboard_engine *engine,
                                                             double divisor);
/** The limit of the gradients' norm from now on; 0: no clipping. */
OUTBOARD_C_API outboard_status outboard_set_max_grad_norm(outboard_engine *engine,
                                                          double max_grad_norm);

/* --- between steps --------------------------------------------------------------------------- */

/** Blocks until every update and upload has finished. */
OUTBOARD_C_API outboard_status outboard_synchronize(outboard_engine *engine);
/** The trainer wrote the weight itself: the master is read from it again. Blocks. */
OUTBOARD_C_API outboard_status outboard_weights_changed(outboard_engine *engine,
                                                        uint32_t parameter,
                                                        outboard_stream stream);
/** The trainer moved the weight, value and all, to `data`. Blocks. */
OUTBOARD_C_API outboard_status outboard_rebind(outboard_engine *engine, uint32_t parameter,
                                               void *data);
/** Equal digests mean equal bits of all state. */
OUTBOARD_C_API outboard_status outboard_state_digest(outboard_engine *engine, uint64_t *out);
/** Copies one stream of a parameter's state, "master", "exp_avg", ...; `elems` must be its size. */
OUTBOARD_C_API outboard_status outboard_read_state(outboard_engine *engine, uint32_t parameter,
                                                   const char *stream, float *out,
                                                   uint64_t elems);
/** Replaces one stream of a parameter's state and its step count. */
OUTBOARD_C_API outboard_status outboard_write_state(outboard_engine *engine, uint32_t parameter,
                                                    const char *stream, const float *values,
                                                    uint64_t elems, uint64_t step_count);
/** Saves all state as one more checkpoint in `folder`; the newest `keep_last` stay, 0: all. */
OUTBOARD_C_API outboard_status outboard_save(outboard_engine *engine, const char *folder,
                                             uint32_t keep_last);
/** Loads the newest checkpoint in `folder`; `strict` 0: what fits. */
OUTBOARD_C_API outboard_status outboard_load(outboard_engine *engine, const char *folder,
                                             int strict);
OUTBOARD_C_API outboard_status outboard_get_stats(outboard_engine *engine, outboard_stats *out);
/** A report of threads, placement and settings: at most `bytes` of it with the ending 0 into
 *  `text`; `needed` (may be null) gets the bytes of all of it. `text` may be null if `bytes` is 0. */
OUTBOARD_C_API outboard_status outboard_describe(outboard_engine *engine, char *text, size_t bytes,
                                                 size_t *needed);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */

#endif
