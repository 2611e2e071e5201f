# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The text of errors: heads, tracebacks, what log processors and tests look for."""

import re

import ray
from program import main, program, say


def text_of(ref):
    try:
        ray.get(ref)
    except Exception as error:
        return re.sub(r"\x1b\[[0-9;]*m", "", str(error))


def has(text, *patterns):
    for pattern in patterns:
        say(pattern, bool(re.search(pattern, text)))


@ray.remote
def fails():
    raise ValueError("the reason")


@ray.remote
def passes(value):
    return value


@ray.remote
class Actor:
    def fails(self):
        raise KeyError("of the actor")

    async def later(self):
        raise KeyError("of the coroutine")

    def __repr__(self):
        return "Actor(mine)"


@program
def the_head_of_a_task():
    text = text_of(fails.remote())
    has(text, r"^ray::fails\(\) \(pid=\d+, ip=[\d.]+\)\n", r"ValueError: the reason$")
    has(text, r'File ".*exception_texts.py", line \d+, in fails\n +raise ValueError')


@program
def the_head_of_a_named_task():
    has(text_of(fails.options(name="given").remote()), r"^ray::given\(\) \(pid=\d+, ip=[\d.]+\)\n")


@program
def the_head_of_a_method():
    @ray.remote
    class A:
        def f(self):
            raise ValueError("the reason")

    has(
        text_of(A.remote().f.remote()),
        r"^ray::A\.f\(\) \(pid=\d+, ip=[\d.]+, actor_id=[0-9a-f]+, repr=.*\)\n",
    )


@program
def the_repr_of_an_actor():
    actor = Actor.remote()
    pattern = (
        r"^ray::Actor\.%s\(\) \(pid=\d+, ip=[\d.]+, actor_id=[0-9a-f]+, repr=Actor\(mine\)\)\n"
    )
    has(text_of(actor.fails.remote()), pattern % "fails", r"KeyError: 'of the actor'$")
    has(text_of(actor.later.remote()), pattern % "later", r"KeyError: 'of the coroutine'$")


@program
def the_actor_of_the_text_is_the_handle():
    actor = Actor.remote()
    say(f"actor_id={actor._actor_id.hex()}" in text_of(actor.fails.remote()))


@program
def nested_tasks():
    @ray.remote
    def outer():
        return ray.get(fails.remote())

    text = text_of(outer.remote())
    heads = re.findall(r"ray::(\w+)\(\) \(pid=", text)
    say(heads)
    has(text, r"ValueError: the reason$", r"RayTaskError\(ValueError\)")


@program
def an_argument_that_failed():
    text = text_of(passes.remote(fails.remote()))
    say(re.findall(r"ray::(\w+)\(\) \(pid=", text))
    has(text, "At least one of the input arguments for this task could not be computed:")
    has(text, r"ValueError: the reason$")
    text = text_of(passes.remote(passes.remote(fails.remote())))
    say(re.findall(r"ray::(\w+)\(\) \(pid=", text))
    say(text.count("At least one of the input arguments"))


@program
def frames_of_the_system_are_left_out():
    text = text_of(fails.remote())
    say([line for line in text.splitlines() if line.startswith("  File")].__len__())
    has(text, "_private", "_worker", "site-packages")


@program
def chains_of_exceptions():
    @ray.remote
    def f():
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    @ray.remote
    def g():
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904

    has(text_of(f.remote()), "The above exception was the direct cause of the following exception:")
    has(text_of(g.remote()), "During handling of the above exception, another exception occurred:")
    say(re.findall(r"ray::(\w+)\(\) \(pid=", text_of(f.remote())))


@program
def notes_of_exceptions():
    @ray.remote
    def f():
        error = ValueError("noted")
        error.add_note("a note for you")
        raise error

    has(text_of(f.remote()), "a note for you")


@program
def a_constructor_that_fails():
    @ray.remote
    class Broken:
        def __init__(self):
            raise ValueError("in the constructor")

        def f(self):
            return 1

    text = text_of(Broken.remote().f.remote())
    has(text, "The actor died because of an error raised in its creation task")
    has(text, r"ray::Broken\.__init__\(\) \(pid=\d+, ip=[\d.]+, actor_id=[0-9a-f]+, repr=")
    has(text, r"ValueError: in the constructor")


@program
def a_timeout():
    import time

    @ray.remote
    def sleeps():
        time.sleep(60)

    ref = sleeps.remote()
    try:
        ray.get(ref, timeout=0.1)
    except ray.exceptions.GetTimeoutError as error:
        has(str(error), "Get timed out: some object\\(s\\) not ready")
    ray.cancel(ref, force=True)


if __name__ == "__main__":
    main()
