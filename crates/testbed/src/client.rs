//! Asking the supervisor of a bed.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use crate::{
    bed::Bed,
    control::{Answer, Phase, Request, State},
    error::{Error, Result, While},
};

/// Loading a large image into every node is the slowest thing anybody asks for.
const PATIENCE: Duration = Duration::from_mins(5);

/// One question, one answer. An answer that says "failed" is an error.
pub fn ask(bed: &Bed, request: &Request) -> Result<Answer> {
    let mut conversation = Conversation::open(bed, request)?;
    let patience = conversation.answers.get_ref().set_read_timeout(Some(PATIENCE));
    patience.while_(|| "limiting the wait for an answer".to_owned())?;
    let answer = conversation.next_answer()?;
    match answer {
        Some(Answer::Failed { error }) => Err(Error::refused(format!("bed {bed}: {error}"), "see `testbed status`")),
        Some(answer) => Ok(answer),
        None => Err(Error::refused(format!("bed {bed} hung up without an answer"), "see `testbed logs supervisor`")),
    }
}

pub fn state(bed: &Bed) -> Result<State> {
    match ask(bed, &Request::Status)? {
        Answer::State(state) => Ok(*state),
        _ => Err(Error::refused(format!("bed {bed} gave an answer of another version"), "run `testbed down`, then up")),
    }
}

/// Calls back for each step until the bed is ready; an error if it fails or goes away.
pub fn follow(bed: &Bed, mut each: impl FnMut(&State)) -> Result<()> {
    let mut conversation = Conversation::open(bed, &Request::Follow)?;
    while let Some(answer) = conversation.next_answer()? {
        let Answer::State(state) = answer else { continue };
        each(&state);
        match state.phase {
            Phase::Starting => {}
            Phase::Ready => return Ok(()),
            Phase::Failed => {
                return Err(Error::refused(
                    format!("bed {bed} did not start: {}", state.step),
                    "`testbed down` and `testbed up` begin afresh",
                ));
            }
        }
    }
    Err(Error::refused(format!("bed {bed} went away while it was starting"), "run `testbed up` again"))
}

pub fn is_answering(bed: &Bed) -> bool {
    UnixStream::connect(bed.control_socket()).is_ok()
}

struct Conversation {
    bed: Bed,
    answers: BufReader<UnixStream>,
}

impl Conversation {
    fn open(bed: &Bed, request: &Request) -> Result<Self> {
        let socket = UnixStream::connect(bed.control_socket()).map_err(|_| {
            Error::refused(format!("bed {bed} is not running"), "start it with `make up` or `testbed up`")
        })?;
        let line = serde_json::to_string(request).while_(|| "the request".to_owned())?;
        let talking = |source| Error::Io { what: format!("talking to bed {bed}"), source };
        writeln!(&socket, "{line}").map_err(talking)?;
        Ok(Conversation { bed: bed.clone(), answers: BufReader::new(socket) })
    }

    fn next_answer(&mut self) -> Result<Option<Answer>> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).while_(|| format!("listening to bed {}", self.bed))?;
        if read == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).while_(|| format!("the answer of bed {}", self.bed))
    }
}
